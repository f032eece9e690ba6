# SPDX-License-Identifier: Apache-2.0
#
# onnx_fp8._core, the extension module of the Python package, and the files of
# the package that are built, as install components: `python_core` is the
# extension for this Python, `python_abi3` the one for 3.12 and later, `python`
# all else. pyproject.toml and scripts/make_wheel.py put the Python files beside
# them.
set(ONNX_FP8_STABLE_PYTHON "" CACHE PATH
  "headers of Python 3.13 and its folder; empty: no extension for 3.12 and later")
if(ONNX_FP8_PYTHON)
  set(Python_EXECUTABLE "${ONNX_FP8_PYTHON}")
endif()
if(CMAKE_CROSSCOMPILING)
  # The Python of the other CPU, in the emulator. It reads those packages of this
  # machine's environment that have no machine code.
  execute_process(COMMAND "${ONNX_FP8_PYTHON}" -c
    "import sysconfig; print(sysconfig.get_path('purelib'), end='')"
    OUTPUT_VARIABLE packages COMMAND_ERROR_IS_FATAL ANY)
  string(JOIN " " emulated ${CMAKE_CROSSCOMPILING_EMULATOR}
    -E "PYTHONPATH=${packages}" "${CMAKE_FIND_ROOT_PATH}/usr/bin/python3.11")
  set(Python_EXECUTABLE "${CMAKE_BINARY_DIR}/python3")
  file(WRITE "${Python_EXECUTABLE}" "#!/bin/sh\nexec ${emulated} \"$@\"\n")
  file(CHMOD "${Python_EXECUTABLE}" FILE_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(Python_INCLUDE_DIR "${CMAKE_FIND_ROOT_PATH}/usr/include/python3.11")
endif()
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_DIR OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

file(GLOB python_sources CONFIGURE_DEPENDS python/*.cc)
# core_module(<target> <folder>): the extension in build/<folder>/onnx_fp8, with
# the headers and for the version of Python_INCLUDE_DIRS and Python_VERSION. From
# 3.12 on, one that is built with STABLE_ABI serves all later versions.
function(core_module target folder)
  nanobind_add_module(${target} STABLE_ABI NB_STATIC NB_DOMAIN onnx_fp8
    ${python_sources})
  target_link_libraries(${target} PRIVATE our_flags cli training)
  target_link_options(${target} PRIVATE
    "-Wl,--version-script=${PROJECT_SOURCE_DIR}/python/symbols.map")
  set_target_properties(${target} PROPERTIES OUTPUT_NAME _core
    LINK_DEPENDS "${PROJECT_SOURCE_DIR}/python/symbols.map"
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/${folder}/onnx_fp8")
endfunction()
core_module(_core python)
# The headers take two thirds of the time to compile nanobind's sources.
set_target_properties(nanobind-static PROPERTIES
  UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
if(ONNX_FP8_SANITIZE)
  # Tests run it in place.
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/python/onnx_fp8")
  file(GLOB package_files CONFIGURE_DEPENDS python/onnx_fp8/*.py)
  foreach(path IN LISTS package_files)
    cmake_path(GET path FILENAME name)
    file(CREATE_LINK "${path}" "${CMAKE_BINARY_DIR}/python/onnx_fp8/${name}"
      SYMBOLIC)
  endforeach()
  return()
endif()
# Type checkers read it, and people the docstrings.
nanobind_add_stub(core_stub MODULE _core
  OUTPUT "${CMAKE_BINARY_DIR}/python/onnx_fp8/_core.pyi"
  PYTHON_PATH "${CMAKE_BINARY_DIR}/python/onnx_fp8" DEPENDS _core)
set(python_parts)
foreach(part IN ITEMS onnx_fp8_crypto onnx_fp8_mpi onnx_fp8_ort)
  if(TARGET ${part})
    list(APPEND python_parts ${part})
  endif()
endforeach()
# `pip install .` with a CUDA toolkit; wheels have no CUDA inside.
if(SKBUILD AND TARGET onnx_fp8_cuda)
  list(APPEND python_parts onnx_fp8_cuda)
endif()
add_custom_target(python_package ALL DEPENDS _core ${python_parts} core_stub)
install(TARGETS _core LIBRARY DESTINATION onnx_fp8
  COMPONENT python_core EXCLUDE_FROM_ALL)
if(ONNX_FP8_STABLE_PYTHON)
  add_library(Python::SABIModule INTERFACE IMPORTED)  # nanobind looks for it
  set(Python_VERSION 3.12)
  set(Python_INCLUDE_DIRS "${ONNX_FP8_STABLE_PYTHON}/python3.13"
    "${ONNX_FP8_STABLE_PYTHON}")
  core_module(_core_abi3 python_abi3)
  # nanobind's headers print to stderr. For 3.11 and later Python.h, which comes
  # first, does not include <stdio.h>, nor do headers of libc++.
  target_compile_options(nanobind-static-abi3 PUBLIC
    "SHELL:-include Python.h" "SHELL:-include stdio.h")
  add_dependencies(python_package _core_abi3)
  install(TARGETS _core_abi3 LIBRARY DESTINATION onnx_fp8
    COMPONENT python_abi3 EXCLUDE_FROM_ALL)
endif()

install(FILES "${CMAKE_BINARY_DIR}/python/onnx_fp8/_core.pyi"
  DESTINATION onnx_fp8 COMPONENT python EXCLUDE_FROM_ALL)
install(TARGETS ${python_parts} LIBRARY DESTINATION onnx_fp8
  COMPONENT python EXCLUDE_FROM_ALL)
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES "${PROJECT_SOURCE_DIR}/${header}"
    DESTINATION "onnx_fp8/include/${folder}"
    COMPONENT python EXCLUDE_FROM_ALL)
endforeach()
