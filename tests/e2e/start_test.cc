// How foretoken-local starts: what it opens, what it says, and what it refuses
// before a model is loaded.
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/net/bound_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/process.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_connection.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kRandom[] =
    "--random-model=d_model=32,layers=1,heads=2,kv_heads=1,d_ff=32,vocab=64 "
    "--threads=1 ";

// A program, with its log in a file.
class LoggedProcess {
 public:
  explicit LoggedProcess(const std::string& command)
      : process_(
            {"/bin/sh", "-c",
             absl::StrCat("exec ", command, " >", dir_.File("log"), " 2>&1")}) {
  }

  std::vector<std::string> Lines() const {
    std::ostringstream text;
    text << std::ifstream(dir_.File("log")).rdbuf();
    return absl::StrSplit(text.str(), '\n', absl::SkipEmpty());
  }
  std::string Log() const {
    std::string log;
    for (const std::string& line : Lines()) absl::StrAppend(&log, line, "\n");
    return log;
  }
  // Waits for a line with `words`, and returns what follows them.
  std::string After(const std::string& words) const {
    std::string found;
    EXPECT_TRUE(Eventually([&] {
      const std::string log = Log();
      const size_t at = log.find(words);
      const size_t end = at == std::string::npos ? at : log.find('\n', at);
      if (end == std::string::npos) return false;
      found = log.substr(at + words.size(), end - at - words.size());
      return true;
    })) << Log();
    return found;
  }
  Process& process() { return process_; }

 private:
  const TempDir dir_;
  Process process_;
};

// The command ends with `code`, says `why`, and has loaded no model.
void ExpectRefused(const std::string& arguments, int code,
                   const std::string& why) {
  TempDir dir;
  const CommandResult ran = RunBinary(FORETOKEN_LOCAL_BINARY, dir, arguments);
  EXPECT_EQ(ran.exit_status, code) << ran.err;
  EXPECT_THAT(ran.err, AllOf(HasSubstr(why), Not(HasSubstr("loading")),
                             Not(HasSubstr(" ready in "))));
}

TEST(StartTest, HttpAloneOpensNothingElseAndEndsWithItsUrl) {
  LoggedProcess local(absl::StrCat(FORETOKEN_LOCAL_BINARY, " ", kRandom,
                                   "--http-listen=127.0.0.1:0"));
  const std::string url = local.After(" serving ");
  EXPECT_TRUE(absl::StartsWith(url, "http://127.0.0.1:")) << url;
  EXPECT_THAT(local.Lines().back(), HasSubstr(" serving " + url));
  EXPECT_THAT(local.Log(), AllOf(Not(HasSubstr("listening on")),
                                 Not(HasSubstr("/metrics on port"))));
  // Only what was given, and the numerics once.
  EXPECT_THAT(local.After(" config "),
              AllOf(HasSubstr("http-listen=127.0.0.1:0"),
                    HasSubstr("threads=1"), Not(HasSubstr("max-sessions"))));
  const std::string log = local.Log();
  const size_t numerics = log.find("numerics ");
  ASSERT_NE(numerics, std::string::npos) << log;
  EXPECT_EQ(log.find("numerics ", numerics + 1), std::string::npos) << log;
  EXPECT_EQ(local.process().End(SIGTERM), 0);
}

TEST(StartTest, OtherListenersAreOpenedWhereTheyAreGiven) {
  LoggedProcess local(
      absl::StrCat(FORETOKEN_LOCAL_BINARY, " ", kRandom,
                   "--http-listen=127.0.0.1:0 --listen=127.0.0.1:0 "
                   "--metrics-listen=127.0.0.1:0"));
  const std::string url = local.After(" serving ");
  EXPECT_TRUE(RawConnection(local.After("listening on ")).connected());
  EXPECT_TRUE(RawConnection(
                  absl::StrCat("127.0.0.1:", local.After("/metrics on port ")))
                  .connected());
  EXPECT_THAT(local.Lines().back(), HasSubstr(url));
  EXPECT_EQ(local.process().End(SIGTERM), 0);
}

TEST(StartTest, LoadingIsLoggedWithItsSizeAndTime) {
  LoggedProcess local(absl::StrCat(FORETOKEN_LOCAL_BINARY, " --model ",
                                   SourcePath("tools/demo/target"),
                                   " --threads=1 --http-listen=127.0.0.1:0"));
  local.After(" serving ");
  EXPECT_THAT(local.Log(), ::testing::ContainsRegex(
                               "loading model target, [0-9.]+ MB\n(.*\n)*.*"
                               "model target ready in [0-9.]+ s, numerics "));
  EXPECT_EQ(local.process().End(SIGTERM), 0);
}

TEST(StartTest, AddressesInUseAreFoundBeforeAModelIsLoaded) {
  auto bound = net::BoundSocket::Bind("127.0.0.1:0");
  FORETOKEN_ASSERT_OK(bound);
  const std::string taken = absl::StrCat("127.0.0.1:", bound->port());
  const auto fd = (*std::move(bound)).Listen(8);
  FORETOKEN_ASSERT_OK(fd);
  const std::string why = "cannot listen on " + taken;
  const std::string free = "--listen=127.0.0.1:0 --metrics-listen= ";
  ExpectRefused(absl::StrCat(kRandom, free, "--http-listen=", taken), 1, why);
  ExpectRefused(absl::StrCat(kRandom, "--metrics-listen= --listen=", taken), 1,
                why);
  ExpectRefused(
      absl::StrCat(kRandom, "--listen=127.0.0.1:0 --metrics-listen=", taken), 1,
      why);
  ExpectRefused(absl::StrCat(kRandom, free, "--http-listen=unix:/none/s"), 1,
                "cannot listen on unix:/none/s: No such file or directory");
  close(*fd);
}

TEST(StartTest, ModesAndFilesAreCheckedBeforeAModelIsLoaded) {
  TempDir dir;
  const std::string base = absl::StrCat("--http-listen=127.0.0.1:0 --model ",
                                        SourcePath("tools/demo/target"), " ");
  ExpectRefused(
      base + "--mode=foo", 2,
      "--mode (FORETOKEN_MODE): unknown mode 'foo', want one of off ");
  ExpectRefused(base + "--mode=draft_model", 2,
                "mode 'draft_model' needs a draft model: give --draft-model");
  ExpectRefused(base + "--mode=crest", 2,
                "mode 'crest' needs a datastore: give --crest");
  const std::string none = dir.File("none.gguf");
  ExpectRefused(base + "--draft-model=" + none, 1,
                none + ": no such file or directory");
  ExpectRefused(base + "--crest=" + none, 1, none);
  ExpectRefused(base + "--prior=" + none, 1, none);
  ExpectRefused(base + "--api-key-file=" + none, 1, none);
  ExpectRefused(base + "--chat-template=" + none, 1, none);
  ExpectRefused(base + "--http-tls-cert=" + none + " --http-tls-key=" + none, 1,
                none);
  ExpectRefused(base + "--auth-token-file=" + none, 1, none);
}

TEST(StartTest, WhatIsNoModelIsNamed) {
  TempDir dir;
  const std::string none = dir.File("none.gguf");
  ExpectRefused("--http-listen=127.0.0.1:0 --model " + none, 1,
                "error: " + none + ": no such file or directory");
  const std::string text = dir.Write("notes.txt", "root:x:0:0");
  ExpectRefused("--http-listen=127.0.0.1:0 --model " + text, 1,
                "error: " + text + ": not a GGUF file or model directory");
  const std::string blocks = SourcePath("tests/golden/gguf/blocks.gguf");
  ExpectRefused("--http-listen=127.0.0.1:0 --model " + blocks, 1,
                "error: model not supported: " + blocks +
                    ": general.architecture is \"none\", want llama");
}

TEST(StartTest, AnOpenAddressNamesTheFlagsThatWork) {
  ExpectRefused(
      absl::StrCat(kRandom, "--http-listen=0.0.0.0:0"), 2,
      "listen address 0.0.0.0:0 is not loopback: want TLS (--http-tls-cert and "
      "--http-tls-key), or --http-insecure behind a proxy with TLS");
  LoggedProcess local(absl::StrCat(FORETOKEN_LOCAL_BINARY, " ", kRandom,
                                   "--http-listen=0.0.0.0:0 --http-insecure"));
  EXPECT_TRUE(absl::StartsWith(local.After(" serving "), "http://localhost:"));
  EXPECT_EQ(local.process().End(SIGTERM), 0);
}

std::string Get(const std::string& url, const std::string& path) {
  const std::string address(
      absl::StripSuffix(absl::StripPrefix(url, "http://"), "/"));
  const RawConnection client(address);
  client.Say(absl::StrCat("GET ", path,
                          " HTTP/1.1\r\nHost: localhost\r\n"
                          "Connection: close\r\n\r\n"));
  return client.ReadAll();
}

TEST(StartTest, ServeServesTheModelUnderItsOwnName) {
  LoggedProcess serve(absl::StrCat(FORETOKEN_BINARY, " serve ",
                                   SourcePath("tools/demo/target"),
                                   " --threads=1 --http-listen 127.0.0.1:0"));
  const std::string url = serve.After(" serving ");
  EXPECT_THAT(Get(url, "/v1/models"), HasSubstr("\"id\":\"target\""));
  EXPECT_THAT(Get(url, "/v1/models/t%61rget"), HasSubstr("\"id\":\"target\""));
  EXPECT_THAT(Get(url, "/"), HasSubstr("<html"));
  EXPECT_EQ(serve.process().End(SIGTERM), 0);
}

TEST(StartTest, AModelNameOverridesTheModelsOwn) {
  LoggedProcess serve(
      absl::StrCat(FORETOKEN_BINARY, " serve ", SourcePath("tools/demo/target"),
                   " --threads=1 --http-listen=127.0.0.1:0 --model-name mine"));
  EXPECT_THAT(Get(serve.After(" serving "), "/v1/models"),
              HasSubstr("\"id\":\"mine\""));
  EXPECT_EQ(serve.process().End(SIGTERM), 0);
}

TEST(StartTest, ServeWantsAModelAndHasHelp) {
  TempDir dir;
  const CommandResult none = RunCommand(dir, "serve --http-listen=127.0.0.1:0");
  EXPECT_EQ(none.exit_status, 2);
  EXPECT_THAT(none.err, HasSubstr("want either --model or --random-model"));
  const CommandResult help = RunCommand(dir, "serve --help");
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out,
              AllOf(HasSubstr("serve MODEL"), HasSubstr("--draft-model")));
}

}  // namespace
}  // namespace foretoken::testing
