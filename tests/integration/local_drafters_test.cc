// All five services in one process, with tiny models: every mode writes what
// plain decoding writes.
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/local/stack.h"
#include "tests/integration/cluster.h"
#include "tests/support/crest_samples.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::testing {
namespace {

constexpr int kVocab = 72;  // of the golden models
constexpr int kMaxTokens = 90;
constexpr int kPrompts = 3;

std::string GoldenModel(const std::string& name) {
  return SourcePath("tests/golden/models/" + name);
}

// A snapshot whose one-token n-grams are found now and then.
std::string WriteDatastore(const TempDir& dir) {
  const std::string path = dir.File("store.crest");
  const CrestSample sample = MakeCrestSample(5, 60, kVocab);
  auto writer = SnapshotWriter::Create(path, sample.meta, sample.table);
  EXPECT_THAT(writer, IsOk());
  EXPECT_THAT(AddAll(sample, **writer), IsOk());
  EXPECT_THAT((*writer)->Publish(sample.meta), IsOk());
  return path;
}

struct Outputs {
  std::vector<std::vector<TokenId>> tokens;
  int64_t accepted = 0;
  int64_t rounds = 0;
  std::map<v1::Drafter, int64_t> answered;
  int64_t degraded = 0;
};

class LocalDraftersTest : public ::testing::Test {
 protected:
  void Start(const std::string& draft_model) {
    local::LocalService config;
    config.verifier.backend.model = GoldenModel("llama_plain_fp32");
    config.verifier.backend.precision = "fp32";
    config.verifier.backend.threads = 1;
    config.draft_model = draft_model;
    config.crest = WriteDatastore(dir_);
    // The machine may be busy: nothing here is about time.
    config.verifier.draft_guard = false;
    config.orchestrator.draft_wait.floor = absl::Seconds(30);
    config.orchestrator.draft_wait.cap = absl::Seconds(30);
    client_.reset();
    server_.reset();
    auto stack = config.Make(registry_);
    ASSERT_THAT(stack, IsOk());
    stack_ = *std::move(stack);
    auto server = rpc::Server::Start(rpc::ServerOptions(), {stack_.get()});
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
    client_ = std::make_unique<WireClient>(server_->InProcessChannel());
  }

  Outputs Run(const std::string& mode, float temperature) {
    Outputs outputs;
    for (int i = 0; i < kPrompts; ++i) {
      v1::GenerateRequest request =
          MakeRequest(MakePrompt(i, 20, kVocab), mode, kMaxTokens);
      request.set_ignore_eos(true);
      request.set_cache_scope("scope");
      request.mutable_sampling()->set_seed(i);
      request.mutable_sampling()->set_temperature(temperature);
      const Generated got = Generate(*client_, request);
      FORETOKEN_EXPECT_OK(got.status);
      outputs.tokens.push_back(got.tokens);
      outputs.accepted += got.result.speculation().accepted_tokens();
      outputs.rounds += got.result.speculation().rounds();
      for (const auto& by : got.result.speculation().by_drafter()) {
        outputs.answered[by.drafter()] += by.rounds();
        outputs.degraded += by.degraded_rounds();
      }
    }
    return outputs;
  }

  TempDir dir_;
  metrics::Registry registry_;
  std::unique_ptr<local::Stack> stack_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<WireClient> client_;
};

TEST_F(LocalDraftersTest, EveryModeWritesWhatOffWrites) {
  for (const char* draft : {"llama_plain_fp32", "llama_tied"}) {
    Start(GoldenModel(draft));
    for (const float temperature : {0.0f, 0.8f}) {
      const Outputs off = Run("off", temperature);
      EXPECT_EQ(off.accepted, 0);
      for (const char* mode :
           {"draft_model", "draft_model:gamma=3", "lookahead", "ouroboros",
            "ngram_trie", "crest", "prompt_lookup", "auto"}) {
        const Outputs got = Run(mode, temperature);
        EXPECT_EQ(got.tokens, off.tokens)
            << mode << " at " << temperature << ", draft " << draft;
        EXPECT_EQ(got.degraded, 0) << mode;
        EXPECT_FALSE(got.answered.empty()) << mode;
      }
    }
    client_.reset();
    server_.reset();
    stack_.reset();
  }
}

TEST_F(LocalDraftersTest, ADraftModelEqualToTheTargetIsAlwaysRight) {
  Start(GoldenModel("llama_plain_fp32"));
  for (const float temperature : {0.0f, 0.8f}) {
    const Outputs got = Run("draft_model:gamma=4", temperature);
    // Five tokens a round; the first and the last one may have fewer.
    EXPECT_LE(got.rounds, kPrompts * ((kMaxTokens - 1) / 5 + 2));
  }
}

TEST_F(LocalDraftersTest, LookaheadIsRightWhereTheOutputRepeatsItself) {
  Start("");
  const Outputs got = Run("lookahead", 0.0f);
  EXPECT_GT(got.accepted, got.rounds / 4);
}

TEST_F(LocalDraftersTest, AutoAsksEveryDrafterThatIsThere) {
  Start(GoldenModel("llama_tied"));
  for (const v1::Drafter drafter :
       {v1::DRAFTER_OUROBOROS, v1::DRAFTER_CREST, v1::DRAFTER_FUSED}) {
    // Rounds go on while the draft model reads a prompt, all of them perhaps.
    EXPECT_TRUE(
        Eventually([&] { return Run("auto", 0.0f).answered[drafter] > 0; }))
        << drafter;
  }
  const auto info = client_->GetModelInfo(absl::Now() + absl::Minutes(1));
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->modes_size(), 8);
  EXPECT_TRUE(info->default_speculation().has_auto_());
}

// The limits of its public service, not the defaults of a server.
TEST_F(LocalDraftersTest, TheStackHasTheLimitsOfItsOrchestrator) {
  Start("");
  const auto& options = stack_->generation().options();
  EXPECT_EQ(stack_->LongestCall(), options.max_request_time);
  EXPECT_GT(stack_->max_request_bytes(), options.max_prompt_bytes);
  EXPECT_GT(stack_->receive_bytes(), stack_->max_request_bytes());
}

TEST_F(LocalDraftersTest, WhatCannotBeOpenedIsNamedAtStart) {
  local::LocalService config;
  config.verifier.backend.model = GoldenModel("llama_plain_fp32");
  config.crest = dir_.File("none.crest");
  EXPECT_THAT(config.Make(registry_).status().message(),
              ::testing::HasSubstr("none.crest"));
  config.crest.clear();
  config.prior = dir_.File("none.prior");
  EXPECT_THAT(config.Make(registry_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("--prior")));
  config.prior.clear();
  config.draft_model = dir_.File("nowhere");
  EXPECT_THAT(config.Make(registry_).status().message(),
              ::testing::HasSubstr("nowhere"));
}

// A golden model with a tokenizer beside it.
std::string ModelWithTokenizer(const TempDir& dir, const std::string& name,
                               const std::string& tokenizer) {
  const std::string path = dir.File(name);
  std::filesystem::copy(GoldenModel(name), path);
  std::ofstream(path + "/tokenizer.json") << tokenizer;
  return path;
}

TEST_F(LocalDraftersTest, ADraftModelOfAnotherTokenizerIsRefusedAtStart) {
  const std::string tokenizer = TinyTokenizerJson();
  local::LocalService config;
  config.verifier.backend.model =
      ModelWithTokenizer(dir_, "llama_plain_fp32", tokenizer);
  config.draft_model = ModelWithTokenizer(
      dir_, "llama_tied", absl::StrReplaceAll(tokenizer, {{"<s>", "<t>"}}));
  EXPECT_THAT(config.Make(registry_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("--draft-model: the tokenizer")));
  std::ofstream(config.draft_model + "/tokenizer.json") << tokenizer;
  metrics::Registry registry;
  EXPECT_THAT(config.Make(registry), IsOk());
}

}  // namespace
}  // namespace foretoken::testing
