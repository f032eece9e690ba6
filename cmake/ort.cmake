# SPDX-License-Identifier: Apache-2.0
#
# libonnx_fp8_ort.so, which ONNX Runtime loads: an execution provider and custom
# ops. It needs the runtime's headers, and links to nothing of it.
set(ONNX_FP8_ORT_INCLUDE "" CACHE PATH
  "headers of ONNX Runtime 1.23 or later; empty: no libonnx_fp8_ort.so")
set(ONNX_FP8_OLD_ORT_PYTHON "" CACHE FILEPATH
  "Python of scripts/requirements-ort-1.23.txt")
if(NOT ONNX_FP8_ORT_INCLUDE OR ONNX_FP8_TSAN OR ONNX_FP8_FUZZ)
  message(STATUS "libonnx_fp8_ort.so is left out")
  return()
endif()
set(header "${ONNX_FP8_ORT_INCLUDE}/onnxruntime_c_api.h")
if(NOT EXISTS "${header}")
  message(FATAL_ERROR "expected ONNX_FP8_ORT_INCLUDE to be a folder with "
    "onnxruntime_c_api.h, got '${ONNX_FP8_ORT_INCLUDE}'")
endif()
file(STRINGS "${header}" line REGEX "^#define ORT_API_VERSION [0-9]+")
string(REGEX MATCH "[0-9]+" ort_version "${line}")
if(NOT ort_version GREATER_EQUAL 23)
  message(FATAL_ERROR "expected headers of ONNX Runtime 1.23 or later in "
    "ONNX_FP8_ORT_INCLUDE, got version 1.${ort_version}")
endif()

file(GLOB ort_sources CONFIGURE_DEPENDS providers/ort/*.cc)
list(FILTER ort_sources EXCLUDE REGEX "/exports\\.cc$")
add_library(ort_headers INTERFACE)
target_include_directories(ort_headers SYSTEM INTERFACE
  "${ONNX_FP8_ORT_INCLUDE}")
layer(ort GLOBS ${ort_sources} DEPENDS training ort_headers)

opened_library(onnx_fp8_ort providers/ort/exports.map
  providers/ort/exports.cc)
target_link_libraries(onnx_fp8_ort PRIVATE our_flags ort)
# A runtime closes the library when it is unregistered; threads of our pool
# would then run code that is gone.
target_link_options(onnx_fp8_ort PRIVATE -Wl,-z,nodelete)
