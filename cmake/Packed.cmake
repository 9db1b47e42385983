# The outside libraries of the engine and the command line as static ones:
# out of a folder that `tools/gpu_check --pack` made, for a machine that has
# none of them installed, or out of /usr, for binaries that run on such a
# machine. FORETOKEN_PACKED names the folder.
find_package(Threads REQUIRED)

# foretoken_packed(absl::span absl) : headers, and lib/lib<name>.a of each name.
function(foretoken_packed target)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} SYSTEM INTERFACE
    "${FORETOKEN_PACKED}/include")
  set(archives)
  foreach(name IN LISTS ARGN)
    file(GLOB found "${FORETOKEN_PACKED}/lib/lib${name}.a"
         "${FORETOKEN_PACKED}/lib/${CMAKE_LIBRARY_ARCHITECTURE}/lib${name}.a")
    if(NOT found)
      message(FATAL_ERROR "${FORETOKEN_PACKED}/lib has no lib${name}.a")
    endif()
    list(APPEND archives ${found})
  endforeach()
  if(archives)
    list(JOIN archives "," group)
    target_link_libraries(${target} INTERFACE "$<LINK_GROUP:RESCAN,${group}>"
      Threads::Threads ${CMAKE_DL_LIBS})
  endif()
endfunction()

foretoken_packed(foretoken_absl absl_*)
foreach(part base flat_hash_map flat_hash_set function_ref span status statusor
             str_format strings synchronization time)
  add_library(absl::${part} ALIAS foretoken_absl)
endforeach()
foretoken_packed(nlohmann_json::nlohmann_json)
foretoken_packed(CLI11::CLI11)
foretoken_packed(ZLIB::ZLIB z)
foretoken_packed(OpenSSL::Crypto crypto)
foretoken_packed(PkgConfig::pcre2 pcre2-8)
foretoken_packed(PkgConfig::icu icuuc icudata)
foretoken_packed(PkgConfig::xxhash xxhash)

# Abseil 20220623 leaves it to others to include this, which GCC 13 does not.
if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include cstdint>")
endif()
