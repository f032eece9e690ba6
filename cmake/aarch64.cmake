# SPDX-License-Identifier: Apache-2.0
#
# A toolchain: on x86-64, zig builds for aarch64 and glibc 2.28, and qemu-user
# runs the results. ONNX_FP8_AARCH64_ROOT is a folder with Debian's packages for
# arm64, unpacked.
set(ONNX_FP8_AARCH64_ROOT "" CACHE PATH "Debian arm64 packages, unpacked")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ONNX_FP8_AARCH64_ROOT)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(cpu aarch64)
set(debian_root "${ONNX_FP8_AARCH64_ROOT}")
include("${CMAKE_CURRENT_LIST_DIR}/portable.cmake")
# Programs that the build runs are this machine's. All else is the other's.
set(CMAKE_FIND_ROOT_PATH "${ONNX_FP8_AARCH64_ROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# This machine's `strip` does not know the files: the linker does its work.
foreach(kind IN ITEMS EXE MODULE)
  string(APPEND CMAKE_${kind}_LINKER_FLAGS_INIT " -Wl,-s")
endforeach()
set(CMAKE_STRIP "" CACHE FILEPATH "left out")
# ctest runs the tests by it.
set(CMAKE_CROSSCOMPILING_EMULATOR
  qemu-aarch64 -L "${ONNX_FP8_AARCH64_ROOT}")
