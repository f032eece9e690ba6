# SPDX-License-Identifier: Apache-2.0
#
# The parts of the page that the command report writes, as texts of the program
# (cli/report_page/page_parts.h): our files, and Chart.js, which draws the curves.
#
# As a script, this file writes OUTPUT.
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
  set(text "#include \"cli/report_page/page_parts.h\"\n\nnamespace onnx_fp8 {\n")
  foreach(part IN ITEMS Html Css Script Charts)
    file(READ "${${part}}" content)
    # A page's script ends at the first of these, wherever it stands.
    string(FIND "${content}" ")onnx_fp8\"" quote)
    string(TOLOWER "${content}" lower)
    string(FIND "${lower}" "</script" tag)
    if(NOT part STREQUAL "Html" AND NOT tag EQUAL -1)
      message(FATAL_ERROR "${${part}}: expected no </script in it")
    elseif(NOT quote EQUAL -1)
      message(FATAL_ERROR "${${part}}: expected no )onnx_fp8\" in it")
    endif()
    string(APPEND text "\nconst std::string_view kPage${part} =\n"
      "    R\"onnx_fp8(" "${content}" ")onnx_fp8\";\n")
  endforeach()
  file(WRITE "${OUTPUT}" "${text}\n}  // namespace onnx_fp8\n")
  return()
endif()

# A script is the same on all CPUs.
find_file(ONNX_FP8_CHART_JS chart.min.js REQUIRED NO_CMAKE_FIND_ROOT_PATH
  PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist
  DOC "chart.min.js of Debian's libjs-chart.js")
set(output "${CMAKE_BINARY_DIR}/report_page/page_parts.cc")
set(folder "${PROJECT_SOURCE_DIR}/cli/report_page")
set(script "${PROJECT_SOURCE_DIR}/cmake/report_page.cmake")
add_custom_command(OUTPUT "${output}"
  COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${output}" "-DHtml=${folder}/page.html"
    "-DCss=${folder}/page.css" "-DScript=${folder}/page.js"
    "-DCharts=${ONNX_FP8_CHART_JS}" -P "${script}"
  DEPENDS "${folder}/page.html" "${folder}/page.css" "${folder}/page.js"
    "${ONNX_FP8_CHART_JS}" "${script}" VERBATIM)
set_source_files_properties("${output}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
target_sources(cli PRIVATE "${output}")
