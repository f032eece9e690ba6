// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <tuple>
#include <type_traits>

#include "tests/cuda/emulation/blocks.h"

namespace onnx_fp8::emulation {

// The block's dynamic shared memory, aligned to 16 bytes.
void* DynamicShared();

template <typename T>
const void* PointerIn(const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    return argument;
  } else {
    return nullptr;
  }
}

// A kernel and its arguments.
template <typename... P>
struct KernelCall {
  void (*kernel)(P...);
  std::tuple<P...> arguments;

  static void Run(const void* call) {
    auto self = static_cast<const KernelCall*>(call);
    std::apply(self->kernel, self->arguments);
  }
  static void Delete(const void* call) {
    delete static_cast<const KernelCall*>(call);
  }
};

// kernel<<<grid, block, shared, stream>>>(args...)
template <typename... P>
cudaError_t Launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                   cudaStream_t stream, std::type_identity_t<P>... args) {
  using Call = KernelCall<P...>;
  static_assert(sizeof(std::tuple<P...>) <= 4096,
                "more arguments than a kernel may have");
  auto call = new Call{kernel, std::tuple<P...>(args...)};
  return LaunchGrid({.kernel = reinterpret_cast<const void*>(kernel),
                     .grid = grid,
                     .block = block,
                     .shared = shared,
                     .pointers = {PointerIn(args)...},
                     .thread = Call::Run,
                     .drop = Call::Delete,
                     .call = call,
                     .call_bytes = sizeof(Call)},
                    stream);
}

}  // namespace onnx_fp8::emulation
