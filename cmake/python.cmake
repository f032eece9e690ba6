# SPDX-License-Identifier: Apache-2.0
#
# onnx_fp8._core, the extension module of the Python package, and the install
# component `python`: all files of the package that are built. pyproject.toml
# and scripts/make_wheel.py put the Python files beside them.
if(ONNX_FP8_PYTHON)
  set(Python_EXECUTABLE "${ONNX_FP8_PYTHON}")
endif()
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_DIR OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

file(GLOB python_sources CONFIGURE_DEPENDS python/*.cc)
# From Python 3.12 on one module serves all versions.
nanobind_add_module(_core STABLE_ABI NB_STATIC NB_DOMAIN onnx_fp8
  ${python_sources})
target_link_libraries(_core PRIVATE our_flags cli training)
target_link_options(_core PRIVATE
  "-Wl,--version-script=${PROJECT_SOURCE_DIR}/python/symbols.map")
set_target_properties(_core PROPERTIES
  LINK_DEPENDS "${PROJECT_SOURCE_DIR}/python/symbols.map"
  LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/python/onnx_fp8")
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
set(python_parts _core)
foreach(part IN ITEMS onnx_fp8_crypto onnx_fp8_mpi onnx_fp8_ort)
  if(TARGET ${part})
    list(APPEND python_parts ${part})
  endif()
endforeach()
# `pip install .` with a CUDA toolkit; wheels have no CUDA inside.
if(SKBUILD AND TARGET onnx_fp8_cuda)
  list(APPEND python_parts onnx_fp8_cuda)
endif()
add_custom_target(python_package ALL DEPENDS ${python_parts} core_stub)

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
