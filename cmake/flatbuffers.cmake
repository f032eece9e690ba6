# SPDX-License-Identifier: Apache-2.0
#
# Code for the flatbuffers of data/*.fbs. Only headers of the library are used.
find_program(FLATC flatc REQUIRED)
find_path(FLATBUFFERS_INCLUDE flatbuffers/flatbuffers.h REQUIRED)
set(flatbuffers_folder "${CMAKE_BINARY_DIR}/flatbuffers")
set(checkpoint_schema "${PROJECT_SOURCE_DIR}/data/ort_checkpoint.fbs")
add_custom_command(
  OUTPUT "${flatbuffers_folder}/ort_checkpoint_generated.h"
  COMMAND "${FLATC}" --cpp -o "${flatbuffers_folder}" "${checkpoint_schema}"
  DEPENDS "${checkpoint_schema}" VERBATIM)
target_sources(data PRIVATE
  "${flatbuffers_folder}/ort_checkpoint_generated.h")
target_include_directories(data SYSTEM PRIVATE
  "${flatbuffers_folder}" "${FLATBUFFERS_INCLUDE}")
