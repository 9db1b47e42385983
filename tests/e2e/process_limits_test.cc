// Processes with few descriptors, or little address space.
#include <signal.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/process.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_connection.h"
#include "tests/support/temp_dir.h"

namespace foretoken::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kLocal[] = FORETOKEN_LOCAL_BINARY
    " --random-model=d_model=32,layers=1,heads=2,kv_heads=1,d_ff=32,vocab=64"
    " --threads=1 --listen=127.0.0.1:0 --http-listen=127.0.0.1:0"
    " --metrics-listen=127.0.0.1:0";

// A command under a limit of the shell's ulimit, with what it says in a file.
class LimitedProcess {
 public:
  LimitedProcess(const std::string& limit, const std::string& command)
      // First the log: the shell needs descriptors of its own for that.
      : process_({"/bin/sh", "-c",
                  absl::StrCat("exec >", dir_.File("log"), " 2>&1; ulimit ",
                               limit, "; exec ", command)}) {}

  std::string Log() const {
    std::ifstream file(dir_.File("log"));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  // The address behind `words` in the log; empty while it is not there.
  std::string AddressAfter(const std::string& words) const {
    const std::string log = Log();
    const size_t at = log.find(words);
    if (at == std::string::npos) return "";
    const size_t begin = at + words.size();
    const size_t end = log.find('\n', begin);
    return end == std::string::npos ? "" : log.substr(begin, end - begin);
  }
  Process& process() { return process_; }

 private:
  const TempDir dir_;
  Process process_;
};

TEST(ProcessLimitsTest, TooFewDescriptorsAreAnErrorBeforeAnythingStarts) {
  for (const char* binary :
       {FORETOKEN_LOCAL_BINARY, FORETOKEN_ORCHESTRATOR_BINARY,
        FORETOKEN_VERIFIER_BINARY}) {
    for (const int files : {12, 28, 31}) {
      SCOPED_TRACE(absl::StrCat(binary, " ", files));
      LimitedProcess limited(absl::StrCat("-n ", files), binary);
      EXPECT_EQ(limited.process().End(0), 1);
      EXPECT_THAT(limited.Log(), HasSubstr("open files: the limit"));
    }
  }
}

TEST(ProcessLimitsTest, TooLittleAddressSpaceIsAnError) {
  for (const int megabytes : {200, 350, 500, 800}) {
    SCOPED_TRACE(megabytes);
    LimitedProcess limited(absl::StrCat("-v ", megabytes << 10), kLocal);
    EXPECT_EQ(limited.process().End(0), 1);
    EXPECT_THAT(limited.Log(), HasSubstr("address space: the limit"));
  }
}

std::string Get(const std::string& address, const std::string& path) {
  const RawConnection client(address);
  client.Say(absl::StrCat("GET ", path,
                          " HTTP/1.1\r\nHost: localhost\r\n"
                          "Connection: close\r\n\r\n"));
  return client.ReadAll();
}

TEST(ProcessLimitsTest, ClientsOfOneListenerKeepNobodyOutOfAnother) {
  LimitedProcess limited("-n 64", kLocal);
  const std::string http_words = "HTTP on ", grpc_words = "listening on ";
  ASSERT_TRUE(Eventually([&] {
    return !limited.AddressAfter(grpc_words).empty();
  })) << limited.Log();
  const std::string http = limited.AddressAfter(http_words);
  const std::string grpc = limited.AddressAfter(grpc_words);
  const std::string page =
      absl::StrCat("127.0.0.1:", limited.AddressAfter("/metrics on port "));
  std::vector<RawConnection> idle;
  for (int i = 0; i < 64; ++i) {
    idle.emplace_back(http);
    idle.emplace_back(grpc);
    if (i % 8 == 0) idle.emplace_back(page);
  }
  // A listener that is full takes another client once some have said nothing
  // for a while.
  EXPECT_TRUE(Eventually(
      [&] { return absl::StartsWith(Get(page, "/metrics"), "HTTP/1.1 200"); }));
  EXPECT_TRUE(Eventually(
      [&] { return absl::StartsWith(Get(http, "/health"), "HTTP/1.1 200"); }));
  EXPECT_TRUE(Eventually([&] {
    const RawConnection client(grpc);
    client.Say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    client.Say(std::string("\0\0\0\4\0\0\0\0\0", 9));  // SETTINGS
    return !client.ReadSome().empty();
  }));
  EXPECT_EQ(limited.process().End(SIGTERM), 0) << limited.Log();
}

}  // namespace
}  // namespace foretoken::testing
