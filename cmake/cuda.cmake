# SPDX-License-Identifier: Apache-2.0
#
# The CUDA provider, libonnx_fp8_cuda.so, which a program opens when it is to
# run on a GPU (training/load_cuda.cc). nvcc compiles the kernels for a GPU; a
# host compiler compiles the same files for the emulated device of tests/cuda.

# ---- the toolkit
set(cuda_compiler "${ONNX_FP8_CUDA_HOME}/bin/nvcc")
find_library(cuda_runtime cudart_static NO_CACHE REQUIRED NO_DEFAULT_PATH
  PATHS "${ONNX_FP8_CUDA_HOME}" PATH_SUFFIXES
  lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib)
add_library(cuda_headers INTERFACE)
target_include_directories(cuda_headers SYSTEM INTERFACE
  "${ONNX_FP8_CUDA_HOME}/include" "${ONNX_FP8_CUDA_HOME}/include/cccl")
execute_process(COMMAND "${cuda_compiler}" --list-gpu-arch
  OUTPUT_VARIABLE cuda_architectures COMMAND_ERROR_IS_FATAL ANY)

file(GLOB cuda_host_sources CONFIGURE_DEPENDS
  providers/cuda/*.cc providers/cuda/*/*.cc)
list(FILTER cuda_host_sources EXCLUDE REGEX "/cuda_module\\.cc$")
file(GLOB cuda_kernel_sources CONFIGURE_DEPENDS
  providers/cuda/*.cu providers/cuda/*/*.cu)
registers(cuda_kernels KernelRegistry providers/kernel.h onnx_fp8::cuda
  providers/cuda/*/*.cc providers/cuda/*/*.cu)

# ---- cuDNN, for attention and convolutions
# Its headers are the pinned ones, whatever the toolkit has. The library is
# opened at run time: the machine's, or the pinned one.
set(cudnn_sources ${cuda_host_sources})
list(FILTER cudnn_sources INCLUDE REGEX "/cudnn[a-z_]*\\.cc$")
list(REMOVE_ITEM cuda_host_sources ${cudnn_sources})
set(without_cudnn ${cuda_host_sources})
list(FILTER without_cudnn INCLUDE REGEX "/no_library\\.cc$")
list(REMOVE_ITEM cuda_host_sources ${without_cudnn})

# cudnn_objects(<variable>)
function(cudnn_objects variable)
  set(packages "${ONNX_FP8_CUDNN_PACKAGES}")
  if(NOT packages)
    set(${variable} ${without_cudnn} PARENT_SCOPE)
    return()
  endif()
  set(cudnn "${packages}/nvidia/cudnn_jit")
  add_library(cudnn_plans OBJECT ${cudnn_sources})
  # They precede the toolkit's headers.
  target_include_directories(cudnn_plans SYSTEM PRIVATE
    "${PROJECT_SOURCE_DIR}/providers/cuda/library/no_nvrtc"
    "${packages}/include" "${cudnn}/include")
  target_compile_definitions(cudnn_plans PRIVATE
    CUDNN_FRONTEND_SKIP_JSON_LIB
    ONNX_FP8_CUDNN_LIBRARY="${cudnn}/lib/libcudnn.so.9")
  target_link_libraries(cudnn_plans PRIVATE our_flags providers
    cuda_headers)
  # The frontend takes a minute with -O2, and starts kernels of a millisecond.
  target_compile_options(cudnn_plans PRIVATE -O1)
  # Most of a plan's time to compile goes into the frontend's headers.
  if(combines_files)
    set_target_properties(cudnn_plans PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    set_source_files_properties(providers/cuda/attention/cudnn_plan.cc
      providers/cuda/convolution/cudnn_plan.cc PROPERTIES
      UNITY_GROUP cudnn_plans)
  endif()
  set(${variable} $<TARGET_OBJECTS:cudnn_plans> PARENT_SCOPE)
endfunction()

# ---- for the GPU
# Machine code for Hopper, and PTX that newer GPUs translate; machine code for
# Blackwell, if it is wanted and the toolkit has it. No kernel has instructions
# of one GPU, so all are made of the same PTX: its front end is most of nvcc's
# time. Without fused multiply-adds element-wise results equal the CPU's. What
# ptxas says of each kernel is kept for scripts/check_ptxas.py.
# Compression for size makes the code for the GPU a fifth as large, and takes a
# tenth of nvcc's time.
set(cuda_code sm_90a,compute_90)
if(ONNX_FP8_CUDA_BLACKWELL AND cuda_architectures MATCHES "compute_100")
  string(PREPEND cuda_code sm_100a,)
endif()
set(cuda_flags -std=c++20 -O3 -DNDEBUG -fmad=false --expt-relaxed-constexpr
  --compress-mode=${ONNX_FP8_CUDA_COMPRESSION} -Xptxas -v
  -Xcompiler -fPIC,-fvisibility=hidden
  "-gencode=arch=compute_90,code=[${cuda_code}]")

# cuda_units(<variable> <source>...): the files that nvcc compiles, each of which
# includes sources. Where files are combined, a unit includes the next sources of
# a folder until they have 64 KiB. Sources with hundreds of kernels have units of
# their own, and come first: ninja starts these commands after all others, in
# their order, and a long one at the end would leave cores idle.
set(cuda_slow_sources norm.cu norm_grad.cu binary.cu cast.cu reduce.cu)
function(cuda_units variable)
  set(units)
  set(slow)
  foreach(file IN LISTS ARGN)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    cmake_path(GET file FILENAME name)
    set(unit "${file}")
    if(name IN_LIST cuda_slow_sources)
      list(APPEND slow "${unit}")
    elseif(combines_files)
      cmake_path(GET file PARENT_PATH folder)
      math(EXPR number "0${bytes_in_${folder}} / 65536")
      file(SIZE "${PROJECT_SOURCE_DIR}/${file}" bytes)
      math(EXPR bytes_in_${folder} "0${bytes_in_${folder}} + ${bytes}")
      set(unit "${folder}/unit_${number}.cu")
    endif()
    string(APPEND includes_of_${unit} "#include \"${file}\"\n")
    list(APPEND units "${unit}")
  endforeach()
  list(PREPEND units ${slow})
  list(REMOVE_DUPLICATES units)
  foreach(unit IN LISTS units)
    file(CONFIGURE OUTPUT "cuda/${unit}" CONTENT "${includes_of_${unit}}")
  endforeach()
  set(${variable} ${units} PARENT_SCOPE)
endfunction()

# cuda_objects(<variable> <source>...)
# nvcc makes a function that registers an object's kernels with the runtime. It
# does not run when the library is opened, but when
# providers/cuda/core/registrations.cc calls it: a plan without a GPU needs no
# kernels.
function(cuda_objects variable)
  set(objects)
  cuda_units(units ${ARGN})
  foreach(unit IN LISTS units)
    set(file "${CMAKE_BINARY_DIR}/cuda/${unit}")
    set(object "${file}.o")
    add_custom_command(OUTPUT "${object}"
      COMMAND sh -c "\"$0\" \"$@\" 2>'${object}.ptxas' || { cat '${object}.ptxas' >&2; false; }"
        ${CMAKE_CXX_COMPILER_LAUNCHER} "${cuda_compiler}" ${cuda_flags} -I "${PROJECT_SOURCE_DIR}"
        -MD -MF "${object}.d" -c "${file}" -o "${object}"
      COMMAND "${CMAKE_OBJCOPY}" "${object}" --rename-section
        .init_array=cuda_registrations,alloc,load,data
      DEPENDS "${file}" DEPFILE "${object}.d"
      COMMENT "Building CUDA object ${unit}.o" VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()

if(NOT ONNX_FP8_SANITIZE AND NOT ONNX_FP8_TSAN AND NOT ONNX_FP8_FUZZ)
  cuda_objects(cuda_objects ${cuda_kernel_sources})
  cudnn_objects(library_objects)
  # cuBLASLt is opened at run time; the runtime looks for the driver itself.
  add_library(cuda_libraries INTERFACE)
  target_link_libraries(cuda_libraries INTERFACE providers cuda_headers
    "${cuda_runtime}" ${CMAKE_DL_LIBS} rt)
  add_library(cuda OBJECT ${cuda_host_sources} ${cuda_kernels})
  combine(cuda ${cuda_host_sources})
  target_link_libraries(cuda PRIVATE our_flags cuda_libraries)
  set(cuda_parts $<TARGET_OBJECTS:cuda> ${cuda_objects} ${library_objects})
  opened_library(onnx_fp8_cuda providers/cuda/exports.map
    providers/cuda/cuda_module.cc ${cuda_parts})
  target_link_libraries(onnx_fp8_cuda PRIVATE our_flags cuda_libraries)
endif()

# ---- for the emulated device
# wrapped(<variable> <source>...): files of C++ that include the kernels, so
# that one source can be compiled twice.
function(wrapped variable)
  set(wrappers)
  foreach(file IN LISTS ARGN)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set(wrapper "${CMAKE_BINARY_DIR}/emulated/${file}.cc")
    file(CONFIGURE OUTPUT "${wrapper}" CONTENT "#include \"${file}\"\n")
    list(APPEND wrappers "${wrapper}")
  endforeach()
  set(${variable} ${wrappers} PARENT_SCOPE)
endfunction()

# A kernel's static shared memory is a static variable of a function, which the
# linker script collects; that needs fixed addresses.
add_library(emulated_flags INTERFACE)
target_include_directories(emulated_flags INTERFACE
  "${PROJECT_SOURCE_DIR}/tests/cuda/emulation")
target_compile_options(emulated_flags INTERFACE -g1 -fno-pie -fdata-sections
  -Wno-unused-function -Wno-unused-variable)
target_link_options(emulated_flags INTERFACE -no-pie
  "-Wl,-T,${PROJECT_SOURCE_DIR}/tests/cuda/emulation/shared_memory.ld")
target_link_libraries(emulated_flags INTERFACE our_flags cuda_headers)

file(GLOB emulation_sources CONFIGURE_DEPENDS tests/cuda/emulation/*.cc)
file(GLOB_RECURSE cuda_tests CONFIGURE_DEPENDS tests/cuda/*_test.cc)
file(GLOB_RECURSE cuda_test_kernels CONFIGURE_DEPENDS tests/cuda/*.cu)
file(GLOB_RECURSE cuda_helpers CONFIGURE_DEPENDS tests/cuda/*.cc)
list(FILTER cuda_helpers EXCLUDE REGEX
  "_test\\.cc$|/tests/cuda/(cudnn|emulation|nvtx)/|/device_main\\.cc$")
list(FILTER cuda_tests EXCLUDE REGEX "/tests/cuda/cudnn/")
# Tests that ask nothing of the emulation also run on a GPU.
set(cuda_device_tests ${cuda_tests})
string(JOIN "|" emulated_only algorithm_file attention_library block_traffic
  convolution_library device_timeline launches many moved_bytes mx_product nccl
  offload ort_runner padded_product primary_weights provider random_graphs
  step_memory traffic tune weight_copies)
list(FILTER cuda_device_tests EXCLUDE REGEX
  "/(${emulated_only})_test\\.cc$|/emulation_test/")
set(cuda_device_helpers ${cuda_helpers})
list(FILTER cuda_device_helpers INCLUDE REGEX
  "/(attention_case|beside_cpu|convolution_case)\\.cc$")
list(APPEND cuda_device_tests ${cuda_device_helpers})
list(REMOVE_ITEM cuda_tests ${cuda_device_tests})
list(REMOVE_ITEM cuda_helpers ${cuda_device_helpers})
if(NOT ONNX_FP8_ORT_INCLUDE)
  list(FILTER cuda_tests EXCLUDE REGEX "/ort_runner_test\\.cc$")
endif()
list(FILTER cuda_host_sources EXCLUDE REGEX
  "/(cublaslt|cupti|nccl)_library\\.cc$")
wrapped(cuda_wrappers ${cuda_kernel_sources} ${cuda_test_kernels})

# All but the kernels, which the checked build compiles another way. Only the
# device itself takes much of a test's time; -Og halves the rest's time to
# compile.
add_library(cuda_emulation OBJECT ${emulation_sources})
combine(cuda_emulation ${emulation_sources})
target_compile_options(cuda_emulation PRIVATE -O2)
add_library(cuda_emulated OBJECT ${cuda_host_sources} ${cuda_kernels}
  ${cuda_tests} ${cuda_helpers})
combine(cuda_emulated ${cuda_host_sources} ${cuda_tests} ${cuda_helpers})
target_compile_options(cuda_emulated PRIVATE -Og)
add_library(cuda_device_tests OBJECT ${cuda_device_tests})
combine(cuda_device_tests ${cuda_device_tests})
target_compile_options(cuda_device_tests PRIVATE -Og)
target_link_libraries(cuda_device_tests PRIVATE our_flags cuda_headers
  test_support)
# A tool that listens to NVTX.
if(EXISTS "${ONNX_FP8_CUDA_HOME}/include/nvtx3/nvToolsExt.h")
  add_library(nvtx_tool SHARED tests/cuda/nvtx/tool.cc)
  target_link_libraries(nvtx_tool PRIVATE cuda_headers)
  set_target_properties(nvtx_tool PROPERTIES CXX_VISIBILITY_PRESET default)
  target_compile_definitions(cuda_emulated PRIVATE
    ONNX_FP8_NVTX_TOOL="$<TARGET_FILE:nvtx_tool>")
endif()
foreach(name IN ITEMS cuda_emulation cuda_emulated)
  target_link_libraries(${name} PRIVATE emulated_flags test_support)
  # It switches stacks, and reads the registers of a fault.
  if(NOT on_x86_64)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endforeach()

# Kernels call fmaf often, which is an instruction of most machines. Its results
# are the same without it.
file(STRINGS /proc/cpuinfo fma REGEX "^flags.* fma( |$)" LIMIT_COUNT 1)
if(fma)
  set(fma -mfma)
endif()

# Pages without access lie around each allocation of the emulated device, and
# UBSan knows the bounds of arrays in shared memory and on the stack. ASan's call
# at each access of a kernel would double the time of the tests; it checks all
# other code. The checked program checks each access of a kernel, byte by byte.
add_library(kernel_checks INTERFACE)
target_compile_options(kernel_checks INTERFACE
  $<$<BOOL:${ONNX_FP8_SANITIZE}>:-fno-sanitize=address>)

# emulated_program(NAME <flags of kernels>...)
function(emulated_program name)
  add_library(${name}_kernels OBJECT ${cuda_wrappers})
  combine(${name}_kernels ${cuda_wrappers})
  target_compile_options(${name}_kernels PRIVATE -O1 ${fma} ${ARGN})
  target_link_libraries(${name}_kernels PRIVATE emulated_flags providers
    kernel_checks)
  # The linker takes the first of two copies of an inline function, which should
  # be the one without checks.
  add_executable(${name} $<TARGET_OBJECTS:cuda_emulation>
    $<TARGET_OBJECTS:cuda_emulated>
    $<TARGET_OBJECTS:cuda_device_tests>
    $<TARGET_OBJECTS:${name}_kernels>)
  target_link_libraries(${name} PRIVATE emulated_flags test_support
    $<TARGET_NAME_IF_EXISTS:ort> training)
  if(TARGET nvtx_tool)
    add_dependencies(${name} nvtx_tool)
  endif()
endfunction()

# Every access of a kernel is checked by the emulation's own functions, which
# take the place of the sanitizers' libraries.
set(checked_accesses -fsanitize=thread,alignment,bounds
  "SHELL:--param tsan-distinguish-volatile=1"
  "SHELL:--param tsan-instrument-func-entry-exit=0")
