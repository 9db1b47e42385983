# Precompiled headers: outside headers that nearly every source reads, compiled
# once a group and not once a source. A target's group follows from what it
# links: gRPC, GoogleTest, both or neither. Sources include what they use all
# the same; FORETOKEN_PCH=OFF builds without, and shows where one forgot to.
option(FORETOKEN_PCH "Precompile outside headers" ON)

# Not nlohmann-json: its inline functions make GCC instantiate the whole parser in
# every source that has them, used or not, which takes a second.
set(_pch_plain
    <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <deque>
    <functional> <map> <memory> <mutex> <optional> <random> <set> <sstream>
    <string> <thread> <tuple> <unordered_map> <utility> <variant> <vector>
    "\"absl/base/thread_annotations.h\"" "\"absl/container/flat_hash_map.h\""
    "\"absl/container/flat_hash_set.h\"" "\"absl/functional/function_ref.h\""
    "\"absl/status/status.h\"" "\"absl/status/statusor.h\""
    "\"absl/strings/numbers.h\"" "\"absl/strings/str_cat.h\""
    "\"absl/strings/str_format.h\"" "\"absl/strings/str_join.h\""
    "\"absl/strings/str_split.h\"" "\"absl/strings/string_view.h\""
    "\"absl/synchronization/mutex.h\"" "\"absl/time/time.h\""
    "\"absl/types/span.h\"")
set(_pch_grpc "\"google/protobuf/message.h\"" "\"google/protobuf/map.h\""
    "\"google/protobuf/repeated_field.h\"" "\"grpcpp/grpcpp.h\""
    "\"grpcpp/generic/async_generic_service.h\""
    "\"grpcpp/impl/codegen/client_callback.h\""
    "\"grpcpp/impl/codegen/proto_utils.h\""
    "\"grpcpp/impl/codegen/server_callback_handlers.h\"")
set(_pch_test "\"gmock/gmock.h\"" "\"gtest/gtest.h\"")

set(_pch_links_plain absl::flat_hash_map absl::statusor absl::str_format
    absl::synchronization)
set(_pch_links_grpc protobuf::libprotobuf gRPC::grpc++)
set(_pch_links_test GTest::gmock)

function(_foretoken_pch_library group)
  set(target foretoken_pch${group})
  if(TARGET ${target})
    return()
  endif()
  set(source "${CMAKE_BINARY_DIR}/pch/empty.cc")
  if(NOT EXISTS "${source}")
    file(WRITE "${source}" "")
  endif()
  set(headers ${_pch_plain})
  set(links ${_pch_links_plain})
  foreach(part grpc test)
    if(group MATCHES ${part})
      list(APPEND headers ${_pch_${part}})
      list(APPEND links ${_pch_links_${part}})
    endif()
  endforeach()
  add_library(${target} OBJECT "${source}")
  target_compile_options(${target} PRIVATE ${FORETOKEN_FP_FLAGS})
  target_link_libraries(${target} PRIVATE ${links})
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

# Sets `found` to those of "_grpc_test" whose headers `target` passes on to what
# links it. Libraries that it links privately come as $<LINK_ONLY:...>, which
# names no target.
function(_foretoken_pch_passed_on target found)
  set(group "")
  if(target MATCHES "^gRPC::")
    set(group "_grpc")
  elseif(target MATCHES "^GTest::")
    set(group "_test")
  elseif(TARGET ${target})
    get_target_property(aliased ${target} ALIASED_TARGET)
    if(aliased)
      set(target ${aliased})
    endif()
    get_target_property(imported ${target} IMPORTED)
    get_property(known TARGET ${target} PROPERTY FORETOKEN_PCH_GROUP SET)
    if(known)
      get_target_property(group ${target} FORETOKEN_PCH_GROUP)
    elseif(NOT imported)
      get_target_property(links ${target} INTERFACE_LINK_LIBRARIES)
      _foretoken_pch_group("${links}" group)
      set_target_properties(${target} PROPERTIES FORETOKEN_PCH_GROUP "${group}")
    endif()
  endif()
  set(${found} "${group}" PARENT_SCOPE)
endfunction()

# Sets `found` to those of "_grpc_test" whose headers a target with these links
# can include.
function(_foretoken_pch_group links found)
  set(parts "")
  foreach(link IN LISTS links)
    _foretoken_pch_passed_on("${link}" more)
    string(APPEND parts "${more}")
  endforeach()
  set(group "")
  foreach(part _grpc _test)
    if("${parts}" MATCHES ${part})
      string(APPEND group ${part})
    endif()
  endforeach()
  set(${found} "${group}" PARENT_SCOPE)
endfunction()

# Called last, when every target and its links are known.
function(foretoken_use_precompiled_headers)
  if(NOT FORETOKEN_PCH)
    return()
  endif()
  get_property(targets GLOBAL PROPERTY FORETOKEN_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(without ${target} DISABLE_PRECOMPILE_HEADERS)
    if(without)
      continue()
    endif()
    get_target_property(folder ${target} SOURCE_DIR)
    get_target_property(sources ${target} SOURCES)
    foreach(source IN LISTS sources)
      get_filename_component(source "${source}" ABSOLUTE BASE_DIR "${folder}")
      # Code for other processors, or in another language's clothes.
      get_source_file_property(options "${source}" DIRECTORY "${folder}"
                               COMPILE_OPTIONS)
      if(options AND NOT options STREQUAL "-O3")
        set_source_files_properties("${source}" DIRECTORY "${folder}"
          PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
      endif()
    endforeach()
    get_target_property(links ${target} LINK_LIBRARIES)
    _foretoken_pch_group("${links}" group)
    _foretoken_pch_library("${group}")
    target_precompile_headers(${target} REUSE_FROM foretoken_pch${group})
  endforeach()
endfunction()

if(FORETOKEN_PCH)
  # What ccache needs to know a precompiled header by its text.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
    # GCC 12 reports false overlaps in std::string (bug 105329), which only its
    # knowledge of system headers silences elsewhere.
    add_compile_options(
      "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>")
  else()
    add_compile_options(
      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endif()
