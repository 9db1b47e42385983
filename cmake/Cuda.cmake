# FORETOKEN_CUDA=AUTO uses a CUDA toolkit if one is found, ON fails without
# one, OFF never looks. It decides what is built; what runs is chosen at start.
# Sanitizers and device code do not mix: AUTO leaves the GPU engine out there.
set(FORETOKEN_CUDA AUTO CACHE STRING "Build the GPU engine: AUTO, ON or OFF")
set_property(CACHE FORETOKEN_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for A100, RTX 3090, RTX 4090 with L4, and H100 with H200; PTX,
# which the driver compiles, for what comes later.
set(FORETOKEN_CUDA_ARCHITECTURES "80-real;86-real;89-real;90a-real;90-virtual"
    CACHE STRING "GPUs to build for: 90, 90-real, 90-virtual, 90a-real ...")

set(FORETOKEN_HAVE_CUDA OFF)
if(FORETOKEN_CUDA STREQUAL "ON" OR
   (FORETOKEN_CUDA STREQUAL "AUTO" AND NOT FORETOKEN_SANITIZE))
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(FORETOKEN_HAVE_CUDA ON)
  elseif(FORETOKEN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FORETOKEN_CUDA=ON, but no CUDA compiler was found: "
                        "put nvcc on PATH or set CUDACXX")
  endif()
endif()
message(STATUS "CUDA toolkit: ${FORETOKEN_HAVE_CUDA} (FORETOKEN_CUDA=${FORETOKEN_CUDA})")

if(FORETOKEN_HAVE_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${FORETOKEN_CUDA_ARCHITECTURES})
  if(FORETOKEN_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    # Code of one source may differ by __CUDA_ARCH__, but nvcc preprocesses for
    # the first of several GPUs only: ccache must go by the files read, not by
    # the preprocessor's output.
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_DEPEND=1
                                     ${FORETOKEN_CCACHE_COMMAND})
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc has C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
    list(APPEND CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
  endif()
endif()

# Sets `code` to the compute capabilities that the module has machine code for,
# "80,86", `ptx` to the newest that it has PTX for, 0 where it has none, and
# `warpgroups` to whether it has machine code for 9.0a.
function(foretoken_cuda_code code ptx warpgroups)
  set(real)
  set(newest 0)
  foreach(name IN LISTS FORETOKEN_CUDA_ARCHITECTURES)
    if(NOT name MATCHES "^([0-9]+)[af]?(-real|-virtual)?$")
      message(FATAL_ERROR "FORETOKEN_CUDA_ARCHITECTURES: ${name}, want numbers "
                          "such as 90, 90-real, 90-virtual or 90a-real")
    endif()
    set(number ${CMAKE_MATCH_1})
    if(NOT name MATCHES "-virtual$")
      list(APPEND real ${number})
    endif()
    # PTX for one GPU's own instructions (90a) runs on no other.
    if(NOT name MATCHES "-real$|^[0-9]+[af]" AND number GREATER newest)
      set(newest ${number})
    endif()
  endforeach()
  set(${warpgroups} OFF PARENT_SCOPE)
  if(FORETOKEN_CUDA_ARCHITECTURES MATCHES "(^|;)90a(;|-real|$)")
    set(${warpgroups} ON PARENT_SCOPE)
  endif()
  list(JOIN real "," real)
  set(${code} "${real}" PARENT_SCOPE)
  set(${ptx} ${newest} PARENT_SCOPE)
endfunction()

# foretoken_cuda_module(SRCS gemm.cu engine.cc): the GPU module. A library of
# its own that is loaded at run time, the CUDA runtime inside, nothing exported
# but three functions (module.map); beside the binaries, where they look for it.
# Host code there is compiled as everywhere else, without Abseil.
function(foretoken_cuda_module)
  cmake_parse_arguments(ARG "" "" "SRCS" ${ARGN})
  add_library(foretoken_cuda MODULE ${ARG_SRCS})
  set(map "${PROJECT_SOURCE_DIR}/common/infer/cuda/module.map")
  set_target_properties(foretoken_cuda PROPERTIES
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
    CUDA_RUNTIME_LIBRARY Static
    LINK_DEPENDS "${map}"
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  foretoken_cuda_code(code ptx warpgroups)
  set_source_files_properties(cuda_engine.cc PROPERTIES COMPILE_DEFINITIONS
    "FORETOKEN_CUDA_MACHINE_CODE=${code};FORETOKEN_CUDA_PTX=${ptx};FORETOKEN_CUDA_WARPGROUPS=$<BOOL:${warpgroups}>")
  target_include_directories(foretoken_cuda PRIVATE "${PROJECT_SOURCE_DIR}")
  target_include_directories(foretoken_cuda SYSTEM PRIVATE
    ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  set(errors)
  if(FORETOKEN_WERROR)
    set(errors -Werror=all-warnings)
  endif()
  # Multiplications and additions of the kernels fuse where they say so.
  target_compile_options(foretoken_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:${FORETOKEN_WARNINGS} ${FORETOKEN_FP_FLAGS}>
    "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-Xcompiler=-Wall,-Wextra,-ffp-contract=off;${errors}>")
  target_link_options(foretoken_cuda PRIVATE
    "LINKER:--version-script=${map}" "LINKER:--no-undefined")
  target_link_libraries(foretoken_cuda PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
endfunction()
