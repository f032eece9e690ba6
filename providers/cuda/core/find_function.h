// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include "base/check.h"

namespace onnx_fp8::cuda {

// Sets `function` to the function `name` of a library that dlopen has opened.
// `file`: its name in messages. Errors: the library has no such function.
template <typename F>
void FindFunction(void* library, const char* file, const char* name,
                  F* function) {
  void* found = dlsym(library, name);
  Check(found != nullptr, "[provider cuda] expected the function ", name,
        " in ", file, ", got none");
  *function = reinterpret_cast<F>(found);
}

}  // namespace onnx_fp8::cuda
