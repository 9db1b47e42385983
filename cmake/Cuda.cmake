# FORETOKEN_CUDA=AUTO uses a CUDA toolkit if one is found, ON fails without
# one, OFF never looks. It decides what is built; what runs is chosen at start.
set(FORETOKEN_CUDA AUTO CACHE STRING "Build the GPU engine: AUTO, ON or OFF")
set_property(CACHE FORETOKEN_CUDA PROPERTY STRINGS AUTO ON OFF)

set(FORETOKEN_HAVE_CUDA OFF)
if(NOT FORETOKEN_CUDA STREQUAL "OFF")
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
