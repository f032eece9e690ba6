# SPDX-License-Identifier: Apache-2.0
#
# with_included(<variable>): adds all our headers that the listed headers
# include. CMake runs again if one of them changes.
function(with_included variable)
  set(found ${${variable}})
  set(todo ${found})
  while(todo)
    list(POP_FRONT todo header)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")
    file(STRINGS "${header}" lines REGEX "^#include \"")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
      if(NOT included IN_LIST found)
        list(APPEND found "${included}")
        list(APPEND todo "${included}")
      endif()
    endforeach()
  endwhile()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# A program and libonnx_fp8_cuda.so pass each other objects of the classes in
# these headers. ONNX_FP8_INTERFACE, a hash of the headers and the compiler's
# version, is compiled into both.
set(interface_headers providers/cuda/cuda_module.h)
with_included(interface_headers)
set(interface "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
foreach(header IN LISTS interface_headers)
  file(SHA256 "${PROJECT_SOURCE_DIR}/${header}" hash)
  string(APPEND interface " ${hash}")
endforeach()
string(SHA256 interface "${interface}")
set_source_files_properties(training/load_cuda.cc providers/cuda/cuda_module.cc
  PROPERTIES COMPILE_DEFINITIONS "ONNX_FP8_INTERFACE=\"${interface}\""
  SKIP_UNITY_BUILD_INCLUSION ON)
