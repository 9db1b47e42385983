# Every outside library, with the oldest version that is known to work
# (Debian 12's). Targets are used by name below common/, services/ and tools/.
set(FORETOKEN_PACKED "" CACHE PATH
    "Folder of `tools/gpu_check --pack` with what is not installed here")
if(FORETOKEN_PACKED)
  include(Packed)
  return()
endif()
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(ZLIB REQUIRED)
find_package(LibLZMA REQUIRED)
find_package(absl CONFIG REQUIRED)  # 20220623: no absl/log, no status macros
find_package(nlohmann_json 3.11 CONFIG REQUIRED)
find_package(CLI11 2.1 CONFIG REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8>=10.40)
pkg_check_modules(icu REQUIRED IMPORTED_TARGET icu-uc>=72)  # Unicode NFC
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash>=0.8)
# Line editing of `foretoken chat`; BSD licence, where readline's is the GPL.
# Without it the chat reads plain lines.
pkg_check_modules(libedit IMPORTED_TARGET libedit>=3.1)
find_package(OpenSSL 3.0 REQUIRED)  # SHA-256 of weights; TLS of the gateway

if(FORETOKEN_SERVICES)
  # Module mode: Debian's protobuf installs no ProtobufConfig.cmake.
  find_package(Protobuf 3.21 REQUIRED)
  find_package(gRPC 1.51 CONFIG REQUIRED)
  find_package(PostgreSQL 15 REQUIRED)  # libpq
  pkg_check_modules(hiredis REQUIRED IMPORTED_TARGET hiredis>=0.14)
  # What it says of files (64 bits, as everywhere here) would make its users
  # differ from the precompiled headers.
  get_target_property(options PkgConfig::hiredis INTERFACE_COMPILE_OPTIONS)
  if(options)
    list(REMOVE_ITEM options "-D_FILE_OFFSET_BITS=64")
    set_target_properties(PkgConfig::hiredis PROPERTIES
      INTERFACE_COMPILE_OPTIONS "${options}")
  endif()
  find_package(prometheus-cpp CONFIG REQUIRED)  # 1.0; states none
  find_package(Boost 1.74 REQUIRED)  # headers: Asio, Beast
endif()
if(FORETOKEN_TESTS)
  find_package(GTest 1.12 CONFIG REQUIRED)
  # Reads the datastore a second way. Without it that test is left out.
  pkg_check_modules(pqxx IMPORTED_TARGET libpqxx>=6.4)
endif()
if(FORETOKEN_BENCHMARKS)
  find_package(benchmark 1.7 CONFIG REQUIRED)
endif()
