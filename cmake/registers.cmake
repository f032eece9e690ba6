# SPDX-License-Identifier: Apache-2.0
#
# registers(<variable> <registry> <header> <namespace> <pattern>...): a
# generated source with the function RegisterAll(<registry>& r). It calls each
# function `void Register…(<registry>& r)` that begins a line of a file of the
# patterns. (Objects that register themselves would be left out of programs: a
# linker takes only the members of an archive that something refers to.)
#
# As a script, this file writes OUTPUT.
if(CMAKE_SCRIPT_MODE_FILE)
  set(declarations)
  set(calls)
  foreach(file IN LISTS SOURCES)
    file(READ "${file}" text)
    string(REGEX MATCHALL "\nvoid Register[A-Za-z]+\\(${REGISTRY}& r\\)" found
      "${text}")
    foreach(declaration IN LISTS found)
      string(REGEX MATCH "Register[A-Za-z]+" name "${declaration}")
      string(APPEND declarations "${declaration};")
      string(APPEND calls "  ${name}(r);\n")
    endforeach()
  endforeach()
  file(WRITE "${OUTPUT}" "#include \"${HEADER}\"\n\n"
    "namespace ${NAMESPACE} {\n${declarations}\n\n"
    "void RegisterAll(${REGISTRY}& r) {\n${calls}}\n\n"
    "}  // namespace ${NAMESPACE}\n")
  return()
endif()

function(registers variable registry header namespace)
  file(GLOB sources CONFIGURE_DEPENDS ${ARGN})
  set(output "${CMAKE_BINARY_DIR}/registers/${variable}.cc")
  set(script "${PROJECT_SOURCE_DIR}/cmake/registers.cmake")
  add_custom_command(OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${output}" "-DREGISTRY=${registry}"
      "-DHEADER=${header}" "-DNAMESPACE=${namespace}" "-DSOURCES=${sources}"
      -P "${script}"
    DEPENDS ${sources} "${script}" VERBATIM)
  set(${variable} "${output}" PARENT_SCOPE)
endfunction()
