# SPDX-License-Identifier: Apache-2.0
#
# libonnx_fp8_mpi.so, the only part that is linked with MPI. The program opens
# it when it is to train on several ranks, and needs no MPI otherwise.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI COMPONENTS CXX)
if(NOT MPI_CXX_FOUND)
  message(STATUS "no MPI: training on several ranks is left out")
  return()
endif()
add_library(onnx_fp8_mpi MODULE collectives/mpi_module.cc)
target_link_libraries(onnx_fp8_mpi PRIVATE our_flags MPI::MPI_CXX)
# Not the library of C++ classes, which we do not use.
target_link_options(onnx_fp8_mpi PRIVATE -Wl,--as-needed)
set_target_properties(onnx_fp8_mpi PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
