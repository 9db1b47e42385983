# One target per folder. Its sources and dependencies are listed, never globbed.
include(GoogleTest OPTIONAL)

set(FORETOKEN_WARNINGS
    -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
option(FORETOKEN_WERROR "Warnings are errors" ON)
if(NOT FORETOKEN_WERROR)
  list(REMOVE_ITEM FORETOKEN_WARNINGS -Werror)
endif()

function(_foretoken_common target)
  target_compile_options(${target} PRIVATE ${FORETOKEN_WARNINGS}
                                           ${FORETOKEN_FP_FLAGS})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  set_property(GLOBAL APPEND PROPERTY FORETOKEN_TARGETS ${target})
endfunction()

# foretoken_library(common_base SRCS a.cc DEPS absl::status)
# defines the target foretoken_common_base and its alias foretoken::common_base.
function(foretoken_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target foretoken_${name})
  add_library(${target} STATIC ${ARG_SRCS})
  add_library(foretoken::${name} ALIAS ${target})
  _foretoken_common(${target})
  target_include_directories(${target} INTERFACE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# foretoken_executable(foretoken SRCS main.cc DEPS ...)
function(foretoken_executable name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  _foretoken_common(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  if(FORETOKEN_SANITIZE MATCHES "thread")
    target_sources(${name} PRIVATE
      "${PROJECT_SOURCE_DIR}/tests/support/tsan_abseil.cc")
    target_link_libraries(${name} PRIVATE absl::synchronization ${CMAKE_DL_LIBS})
  endif()
endfunction()

# foretoken_service(foretoken-crest SRCS main.cc DEPS ...): an executable that
# the target `services` builds.
function(foretoken_service name)
  foretoken_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE foretoken::version)
  add_dependencies(services ${name})
endfunction()

# foretoken_test(unit_base LABEL unit SRCS a_test.cc DEPS ...): one binary per
# folder, each test case known to ctest by itself.
function(foretoken_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SRCS;DEPS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  foretoken_executable(${name} SRCS ${ARG_SRCS}
                     DEPS ${ARG_DEPS} foretoken::tests_support GTest::gmock
                          GTest::gtest_main)
  # Most of a test's compilation is the optimisation of matchers that run once.
  # The libraries under test keep their level. (Debug has none, and its
  # precompiled headers do not serve another.)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_options(${name} PRIVATE -O1)
  endif()
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST
    NO_PRETTY_VALUES
    PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
               ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()

# foretoken_fuzzer(fuzz_safetensors SRCS x.cc DEPS ... CORPUS dir): a libFuzzer
# target that ctest runs for a bounded time. `fuzzers` builds them all.
function(foretoken_fuzzer name)
  cmake_parse_arguments(ARG "" "CORPUS;SECONDS" "SRCS;DEPS" ${ARGN})
  if(NOT FORETOKEN_FUZZERS)
    return()
  endif()
  if(NOT ARG_SECONDS)
    set(ARG_SECONDS 10)
  endif()
  foretoken_executable(${name} SRCS ${ARG_SRCS} DEPS ${ARG_DEPS})
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers ${name})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  # Clang takes no header that was precompiled with other sanitizers.
  set_target_properties(${name} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/corpus/${name}")
  add_test(NAME ${name}
    COMMAND ${name} -max_total_time=${ARG_SECONDS} -rss_limit_mb=2048
            -timeout=20 "${CMAKE_BINARY_DIR}/corpus/${name}" ${ARG_CORPUS})
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 300)
endfunction()
