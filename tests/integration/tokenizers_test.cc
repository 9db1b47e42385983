// A server whose model has another tokenizer than the gateway or the command
// line: its tokens would be read as other texts, without any error.
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/json.h"
#include "common/rpc/generation_client.h"
#include "common/text/tokenizer.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "services/gateway/adapters/watched_generator.h"
#include "services/gateway/server.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_connection.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// The same tokens under other ids.
std::string OtherTokenizerJson() {
  Json file = Json::parse(TinyTokenizerJson());
  std::swap(file["model"]["vocab"]["q"], file["model"]["vocab"]["r"]);
  return DumpJson(file);
}

// Says what the test tells it to about its model.
class ToldServer final : public v1::Generation::Service {
 public:
  ToldServer() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~ToldServer() override { server_->Shutdown(); }

  const std::string& address() const { return address_; }
  // "": says nothing.
  void Tell(const std::string& fingerprint) {
    absl::MutexLock lock(&mu_);
    fingerprint_ = fingerprint;
  }

  grpc::Status GetModelInfo(grpc::ServerContext*,
                            const v1::GetModelInfoRequest*,
                            v1::GetModelInfoResponse* response) override {
    absl::MutexLock lock(&mu_);
    if (fingerprint_.empty()) {
      return {grpc::StatusCode::UNAVAILABLE, "no verifier"};
    }
    response->set_model("told");
    response->set_max_positions(100);
    response->set_tokenizer_fingerprint(fingerprint_);
    return grpc::Status::OK;
  }
  grpc::Status Generate(
      grpc::ServerContext*, const v1::GenerateRequest*,
      grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    v1::GenerateResponse response;
    response.mutable_delta()->set_text("served");
    writer->Write(response);
    response.mutable_result()->set_finish_reason(v1::FINISH_REASON_STOP);
    writer->Write(response);
    return grpc::Status::OK;
  }

 private:
  absl::Mutex mu_;
  std::string fingerprint_ ABSL_GUARDED_BY(mu_);
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

class TokenizersTest : public ::testing::Test {
 protected:
  TokenizersTest()
      : own_(FingerprintOf(own_dir_, TinyTokenizerJson())),
        other_(FingerprintOf(other_dir_, OtherTokenizerJson())) {}

  static std::string FingerprintOf(const TempDir& dir,
                                   const std::string& json) {
    return Tokenizer::LoadShared(dir.Write("tokenizer.json", json))
        .value()
        ->fingerprint_bytes();
  }
  std::unique_ptr<gateway::WatchedGenerator> Ask(
      const gateway::WatchedGenerator::ModelTimes& times) const {
    return std::make_unique<gateway::WatchedGenerator>(
        rpc::GenerationClient::Connect(server_.address(), {}).value(),
        /*with_principals=*/false, times);
  }

  const TempDir own_dir_;
  const TempDir other_dir_;
  const std::string own_;
  const std::string other_;
  ToldServer server_;
};

TEST_F(TokenizersTest, TheGatewayIsNotReadyUntilItsTokenizerIsTheServers) {
  ASSERT_NE(own_, other_);
  server_.Tell(other_);
  gateway::GatewayServerOptions options;
  options.http.listen = {"127.0.0.1:0"};
  options.model = own_dir_.path();
  metrics::Registry registry;
  auto gateway = gateway::GatewayServer::Start(
      options, Ask({absl::Milliseconds(10), absl::Minutes(1)}), registry);
  FORETOKEN_ASSERT_OK(gateway);
  const auto say = [&](const std::string& head, const std::string& body) {
    const RawConnection client((*gateway)->addresses().at(0));
    client.Say(absl::StrCat(head,
                            " HTTP/1.1\r\nHost: localhost\r\n"
                            "Connection: close\r\n"
                            "Content-Type: application/json\r\n"
                            "Content-Length: ",
                            body.size(), "\r\n\r\n", body));
    return client.ReadAll();
  };
  const auto health = [&] { return say("GET /health", ""); };
  const auto complete = [&] {
    return say("POST /v1/completions", R"({"prompt": "a"})");
  };
  ASSERT_TRUE(Eventually(
      [&] { return absl::StrContains(health(), "another tokenizer"); }));
  EXPECT_THAT(health(), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(complete(), StartsWith("HTTP/1.1 503"));
  server_.Tell(own_);
  EXPECT_TRUE(
      Eventually([&] { return absl::StartsWith(health(), "HTTP/1.1 200"); }));
  EXPECT_THAT(complete(), StartsWith("HTTP/1.1 200"));
  // The model changes behind the gateway, while nothing is asked.
  server_.Tell(other_);
  EXPECT_TRUE(
      Eventually([&] { return absl::StartsWith(health(), "HTTP/1.1 503"); }));
  EXPECT_THAT(complete(), HasSubstr("another tokenizer"));
}

TEST_F(TokenizersTest, WhatIsKnownOfAModelExpires) {
  server_.Tell(own_);
  const auto generator = Ask({absl::Milliseconds(10), absl::Milliseconds(200)});
  ASSERT_TRUE(
      Eventually([&] { return generator->Info(absl::InfiniteFuture()).ok(); }));
  server_.Tell("");
  EXPECT_TRUE(Eventually([&] {
    const auto info = generator->Info(absl::InfiniteFuture());
    return absl::IsUnavailable(info.status()) &&
           absl::StrContains(info.status().message(), "no longer");
  }));
  server_.Tell(other_);
  ASSERT_TRUE(
      Eventually([&] { return generator->Info(absl::InfiniteFuture()).ok(); }));
  ASSERT_TRUE(Eventually([&] {
    const auto info = generator->Info(absl::InfiniteFuture());
    return info.ok() && info->tokenizer_fingerprint == other_;
  }));
}

TEST_F(TokenizersTest, TheCommandLineRefusesAnothersTokenizer) {
  const auto run = [this](const std::string& words) {
    const std::string command = absl::StrCat(
        FORETOKEN_BINARY, " ", words, " --server ", server_.address(),
        " --tokenizer ", own_dir_.path(), " </dev/null 2>&1");
    std::string output;
    FILE* pipe = popen(command.c_str(), "r");
    std::array<char, 4096> chunk;
    while (const size_t n = fread(chunk.data(), 1, chunk.size(), pipe)) {
      output.append(chunk.data(), n);
    }
    return std::pair(pclose(pipe), output);
  };
  const std::string generate = "generate --prompt a";
  const std::string chat =
      absl::StrCat("chat --no-history --chat-template ",
                   own_dir_.Write("chat.jinja", "{{ messages[0].content }}"));
  server_.Tell(other_);
  for (const std::string& words : {generate, chat}) {
    const auto [status, output] = run(words);
    EXPECT_NE(status, 0) << words;
    EXPECT_THAT(output, HasSubstr("--tokenizer: is not that of the model told"))
        << words;
    EXPECT_THAT(output, Not(HasSubstr("served")));
  }
  server_.Tell(own_);
  const auto [status, output] = run(generate);
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, HasSubstr("served"));
  EXPECT_EQ(run(chat).first, 0);
}

}  // namespace
}  // namespace foretoken::testing
