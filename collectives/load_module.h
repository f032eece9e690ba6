// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/check.h"

namespace onnx_fp8 {

// The error of LoadModule when no folder has the module's file: this build was
// made without that part.
class NoModule : public Error {
 public:
  using Error::Error;
};

// A part of the program in a shared library of its own, because only it needs
// another library.
struct Module {
  const char* name;      // in messages: "MPI"
  const char* file;      // "libonnx_fp8_mpi.so"
  const char* function;  // that fills in the table of the module's functions
  const char* remedy;    // if there is no such file, in messages
  // Plug-ins of the other library look for its functions.
  bool global = false;
};

// Folders that hold modules: this program's, and an installation's folder for
// libraries.
std::vector<std::string> ModuleFolders();

// The address of `module.function`, from the first of `folders` that has the
// file. The module stays for the rest of the process. NoModule: no folder has
// the file. Errors: it can't be opened; it lacks the function.
void* LoadModule(const Module& module, const std::vector<std::string>& folders);

}  // namespace onnx_fp8
