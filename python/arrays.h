// SPDX-License-Identifier: Apache-2.0
//
// Tensors and arrays of Python share memory in both directions. An array is
// numpy's, or any that speaks DLPack. numpy lacks the 16-bit and 8-bit floats:
// such an array is one of unsigned integers beside the name of its dtype.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// A view of `array` (in the host's memory, row-major), which it keeps alive.
// `dtype`: the type whose bits an array of unsigned integers holds; "": its
// own. Errors: [name] another place or order, a dtype that ONNX lacks.
Tensor TensorOf(const nanobind::object& array, const std::string& dtype,
                const std::string& name);

// (array, name of the dtype); the array keeps the tensor's memory alive.
nanobind::tuple ArrayOf(const Tensor& tensor);

// {name: (array, name of the dtype)}.
nanobind::dict ArraysOf(const TensorMap& tensors);

}  // namespace onnx_fp8
