# SPDX-License-Identifier: Apache-2.0
#
# `cmake --install build/release --prefix PREFIX`: the program, the libraries
# that it opens, the public headers, one static library and the files that
# find_package(onnx_fp8) reads. A program that uses them needs a few Debian
# packages (cmake/onnx_fp8-config.cmake.in), but neither this tree nor its
# caches.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS onnx-fp8 RUNTIME)
foreach(library IN ITEMS onnx_fp8_crypto onnx_fp8_mpi)
  if(TARGET ${library})
    install(TARGETS ${library} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  endif()
endforeach()
# `./dev install` does not build these; they are installed if they are there.
foreach(library IN ITEMS onnx_fp8_ort onnx_fp8_cuda)
  if(TARGET ${library})
    install(TARGETS ${library} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
      OPTIONAL)
  endif()
endforeach()

# Public headers: the session, the training loop, and all our headers that these
# include. They are installed in a folder of their own: a folder `training/` in
# /usr/local/include could clash with others.
set(public_headers onnx_fp8/session.h onnx_fp8/trainer.h)
with_included(public_headers)
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES "${PROJECT_SOURCE_DIR}/${header}"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/onnx_fp8/${folder}")
endforeach()

# One archive of our layers and of the ONNX library, whose two archives lie in
# a cache. Only an installation makes it, so that builds stay fast.
set(script "CREATE libonnx_fp8.a\n")
foreach(layer IN ITEMS base vocabulary collectives data graph optimizers
    execution providers training ONNX::onnx ONNX::onnx_proto)
  string(APPEND script "ADDLIB $<TARGET_FILE:${layer}>\n")
endforeach()
file(GENERATE OUTPUT "${CMAKE_BINARY_DIR}/libonnx_fp8.mri"
  CONTENT "${script}SAVE\nEND\n")
install(CODE "
  set(folder \"${CMAKE_BINARY_DIR}/archive\")
  file(MAKE_DIRECTORY \"\${folder}\")
  execute_process(COMMAND \"${CMAKE_AR}\" -M
    INPUT_FILE \"${CMAKE_BINARY_DIR}/libonnx_fp8.mri\"
    WORKING_DIRECTORY \"\${folder}\" COMMAND_ERROR_IS_FATAL ANY)")
install(FILES "${CMAKE_BINARY_DIR}/archive/libonnx_fp8.a"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}")

set(config_folder "${CMAKE_INSTALL_LIBDIR}/cmake/onnx_fp8")
configure_package_config_file(cmake/onnx_fp8-config.cmake.in
  "${CMAKE_BINARY_DIR}/onnx_fp8-config.cmake"
  INSTALL_DESTINATION "${config_folder}"
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(
  "${CMAKE_BINARY_DIR}/onnx_fp8-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${CMAKE_BINARY_DIR}/onnx_fp8-config.cmake"
  "${CMAKE_BINARY_DIR}/onnx_fp8-config-version.cmake"
  DESTINATION "${config_folder}")
