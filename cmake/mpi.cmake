# SPDX-License-Identifier: Apache-2.0
#
# libonnx_fp8_mpi.so, the only part that is linked with MPI. The program opens
# it when it is to train on several ranks, and needs no MPI otherwise.
if(CMAKE_CROSSCOMPILING)
  message(STATUS "built for another CPU: training on several ranks is left out")
  return()
endif()
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI COMPONENTS CXX)
if(NOT MPI_CXX_FOUND)
  message(STATUS "no MPI: training on several ranks is left out")
  return()
endif()
# Not linked with the library of C++ classes, which we do not use.
opened_library(onnx_fp8_mpi collectives/mpi.map collectives/mpi_module.cc)
target_link_libraries(onnx_fp8_mpi PRIVATE our_flags MPI::MPI_CXX)
