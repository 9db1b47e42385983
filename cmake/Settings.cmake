# Language level, output folders, build speed.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

# Floating-point results are part of the contract (bit-exact output): the
# compiler may neither contract a*b+c on its own nor reorder.
set(FORETOKEN_FP_FLAGS -ffp-contract=off -fno-fast-math)

# Paths in this checkout are cached relative to it, so that a clone elsewhere or
# another worktree finds what this one has compiled. The price: debug
# information names the build folder that compiled an object first.
find_program(FORETOKEN_CCACHE ccache)
set(FORETOKEN_CCACHE_COMMAND
    "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}"
    CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
    "${FORETOKEN_CCACHE}")
if(FORETOKEN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FORETOKEN_CCACHE_COMMAND})
endif()
find_program(FORETOKEN_MOLD mold)
if(FORETOKEN_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
if(FORETOKEN_SANITIZE)
  add_compile_options(-fsanitize=${FORETOKEN_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  # Under sanitizers GCC 12 reports false overlaps in std::string (bug 105329)
  # and false uninitialised values in std::regex (bug 105562).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-restrict -Wno-maybe-uninitialized)
  endif()
  add_link_options(-fsanitize=${FORETOKEN_SANITIZE})
endif()
