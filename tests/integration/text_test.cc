// Text in, text out, over gRPC.
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/rpc/status.h"
#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::testing {
namespace {

using ::testing::HasSubstr;

class TextTest : public ::testing::Test {
 protected:
  // A verifier whose model has a tokenizer of this fingerprint ("": none).
  void Start(const std::string& tokenizer_fingerprint = "") {
    const std::string file = dir_.Write("tokenizer.json", TinyTokenizerJson());
    auto tokenizer = Tokenizer::Load(file);
    FORETOKEN_ASSERT_OK(tokenizer);
    tokenizer_ = *std::move(tokenizer);
    TestVerifierOptions options;
    options.fake.vocab_size = kTinyVocabulary;
    options.server.tokenizer_fingerprint = tokenizer_fingerprint;
    verifier_ = StartVerifier(options);
    orchestrator::OrchestratorService config;
    config.verifiers = {verifier_->address()};
    config.tokenizer = file;
    orchestrator_ = StartOrchestrator(config);
  }

  std::vector<TokenId> Tokenize(const std::string& text, bool special) {
    v1::TokenizeRequest request;
    request.set_text(text);
    request.set_add_special_tokens(special);
    v1::TokenizeResponse response;
    grpc::ClientContext context;
    FORETOKEN_EXPECT_OK(rpc::FromGrpcStatus(
        orchestrator_->client->stub().Tokenize(&context, request, &response)));
    return std::vector<TokenId>(response.token_ids().begin(),
                                response.token_ids().end());
  }
  absl::StatusOr<std::string> Detokenize(const std::vector<TokenId>& ids) {
    v1::DetokenizeRequest request;
    request.mutable_token_ids()->Add(ids.begin(), ids.end());
    v1::DetokenizeResponse response;
    grpc::ClientContext context;
    const absl::Status status = rpc::FromGrpcStatus(
        orchestrator_->client->stub().Detokenize(&context, request, &response));
    if (!status.ok()) return status;
    return response.text();
  }

  struct Written {
    absl::Status status;
    std::string text;
    std::vector<TokenId> tokens;
    v1::GenerateResult result;
  };
  Written Write(const v1::GenerateRequest& request) {
    Written written;
    auto result = orchestrator_->client->Generate(
        request, absl::Now() + absl::Minutes(2),
        [&](const v1::GenerateDelta& delta) {
          written.text += delta.text();
          written.tokens.insert(written.tokens.end(), delta.token_ids().begin(),
                                delta.token_ids().end());
          return true;
        });
    written.status = result.status();
    if (result.ok()) written.result = *std::move(result);
    return written;
  }
  static v1::GenerateRequest TextRequest(const std::string& text) {
    v1::GenerateRequest request = MakeRequest({}, "prompt_lookup", 60);
    request.set_text(text);
    return request;
  }

  const TempDir dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<TestVerifier> verifier_;
  std::unique_ptr<TestOrchestrator> orchestrator_;
};

TEST_F(TextTest, TokenizeAndDetokenizeAreTheTokenizersOwn) {
  Start();
  const std::string text = "the man in h\u00e9r xaxb";
  const std::vector<TokenId> ids = tokenizer_->Encode(text);
  EXPECT_EQ(Tokenize(text, false), ids);
  std::vector<TokenId> with_bos = ids;
  with_bos.insert(with_bos.begin(), 0);
  EXPECT_EQ(Tokenize(text, true), with_bos);
  EXPECT_EQ(Detokenize(ids).value_or("?"), text);
  EXPECT_EQ(Tokenize("", false), std::vector<TokenId>());
  EXPECT_THAT(Detokenize({kTinyVocabulary}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("50")));
}

TEST_F(TextTest, ATextPromptIsItsTokens) {
  Start();
  const Written from_text = Write(TextRequest("the man in the "));
  FORETOKEN_ASSERT_OK(from_text.status);
  const Written from_ids = Write(MakeRequest(
      tokenizer_->EncodePrompt("the man in the "), "prompt_lookup", 60));
  FORETOKEN_ASSERT_OK(from_ids.status);
  EXPECT_EQ(from_text.tokens, from_ids.tokens);
  EXPECT_EQ(from_text.text, from_ids.text);
  EXPECT_EQ(from_text.tokens.size(), 60u);
  EXPECT_EQ(Detokenize(from_text.tokens).value_or("?"), from_text.text);
  EXPECT_EQ(
      from_text.result.usage().prompt_tokens(),
      static_cast<int>(tokenizer_->EncodePrompt("the man in the ").size()));
}

TEST_F(TextTest, AStopStringEndsTheTextBeforeIt) {
  Start();
  const Written whole = Write(TextRequest("the man in the "));
  FORETOKEN_ASSERT_OK(whole.status);
  ASSERT_GE(whole.text.size(), 20u);
  const std::string stop = whole.text.substr(10, 3);
  v1::GenerateRequest request = TextRequest("the man in the ");
  request.add_stop(stop);
  const Written cut = Write(request);
  FORETOKEN_ASSERT_OK(cut.status);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
  EXPECT_EQ(cut.result.finish_reason(), v1::FINISH_REASON_STOP);
}

TEST_F(TextTest, AVerifierWithAnotherTokenizerIsRefused) {
  Start(std::string(32, 'x'));
  EXPECT_THAT(
      Write(TextRequest("the")).status,
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("tokenizer")));
}

}  // namespace
}  // namespace foretoken::testing
