# SPDX-License-Identifier: Apache-2.0
#
# A toolchain for wheels that install on older systems: Clang of the package
# ziglang (scripts/requirements-portable.txt) compiles and links for glibc 2.28,
# and puts a C++ library of its own into what it links. ONNX_FP8_ZIG is its
# program. cmake/aarch64.cmake builds by it for another CPU.
set(ONNX_FP8_ZIG "" CACHE FILEPATH "the program zig")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ONNX_FP8_ZIG)
if(NOT cpu)
  set(cpu x86_64)
endif()
# Headers of Debian's packages come after zig's own of the C library. zig would
# check for undefined behaviour where it does not optimize, and write what
# debuggers read.
set(flags -target ${cpu}-linux-gnu.2.28 -fno-sanitize=undefined -g0
  -idirafter "${debian_root}/usr/include/${cpu}-linux-gnu"
  -idirafter "${debian_root}/usr/include")
set(CMAKE_C_COMPILER "${ONNX_FP8_ZIG}" cc ${flags})
set(CMAKE_CXX_COMPILER "${ONNX_FP8_ZIG}" c++ ${flags})
# Where Debian's libraries lie: zig does not say.
set(CMAKE_LIBRARY_ARCHITECTURE ${cpu}-linux-gnu)
# Abseil's libraries, of which only headers are used, are left out. Those of MPI
# may need a newer glibc than we do.
foreach(kind IN ITEMS EXE MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT
    "-Wl,--as-needed -Wl,--allow-shlib-undefined")
endforeach()
# glibc before 2.40 does not keep the registers that this dialect expects.
set(NB_HAS_MTLS_GNU2 OFF)
