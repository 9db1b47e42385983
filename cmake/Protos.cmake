# foretoken_proto_library(protos FILES a.proto b.proto): messages and gRPC stubs,
# generated into the build tree, included as SYSTEM so that warnings stay ours.
function(foretoken_proto_library name)
  cmake_parse_arguments(ARG "" "" "FILES" ${ARGN})
  set(root "${PROJECT_SOURCE_DIR}/protos")
  set(out "${CMAKE_BINARY_DIR}/generated")
  file(MAKE_DIRECTORY "${out}")
  set(sources)
  foreach(file IN LISTS ARG_FILES)
    string(REGEX REPLACE "\\.proto$" "" stem "${file}")
    set(outputs "${out}/${stem}.pb.cc" "${out}/${stem}.pb.h"
                "${out}/${stem}.grpc.pb.cc" "${out}/${stem}.grpc.pb.h")
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND protobuf::protoc -I "${root}" --cpp_out=${out} --grpc_out=${out}
              --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>
              "${root}/${file}"
      DEPENDS "${root}/${file}"
      VERBATIM)
    list(APPEND sources ${outputs})
  endforeach()
  set(target foretoken_${name})
  add_library(${target} STATIC ${sources})
  add_library(foretoken::${name} ALIAS ${target})
  target_include_directories(${target} SYSTEM PUBLIC "${out}")
  target_compile_options(${target} PRIVATE ${FORETOKEN_FP_FLAGS})
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf gRPC::grpc++)
  set_property(GLOBAL APPEND PROPERTY FORETOKEN_TARGETS ${target})
endfunction()
