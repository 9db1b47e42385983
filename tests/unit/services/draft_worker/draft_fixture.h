// A DraftEngine on the fake model, driven by hand, and plain decoding with that
// model to compare with.
#ifndef FORETOKEN_TESTS_UNIT_SERVICES_DRAFT_WORKER_DRAFT_FIXTURE_H_
#define FORETOKEN_TESTS_UNIT_SERVICES_DRAFT_WORKER_DRAFT_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/sampling/sampler.h"
#include "services/draft_worker/core/draft_engine.h"
#include "tests/support/fake_backend.h"

namespace foretoken::draft_worker {

using Tokens = std::vector<TokenId>;

inline const Tokens kPrompt = {1, 7, 3, 9, 4};

inline Tokens Joined(Tokens text, const Tokens& more) {
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

// The fake model's token after `text`, whose first `prompt_length` are prompt.
inline TokenId NextToken(const Tokens& text, int64_t prompt_length,
                         const SamplingParams& params,
                         int32_t vocab_size = 50) {
  SamplingState state(params, prompt_length, vocab_size);
  state.Append(text);
  SamplingState::Scratch scratch;
  return state.Sample(testing::FakeLogits(text, vocab_size), {}, scratch).token;
}

inline Tokens Decode(Tokens text, int64_t prompt_length, int count,
                     const SamplingParams& params) {
  const size_t start = text.size();
  for (int i = 0; i < count; ++i) {
    text.push_back(NextToken(text, prompt_length, params));
  }
  return Tokens(text.begin() + static_cast<int64_t>(start), text.end());
}

inline SamplingParams Seeded(uint64_t seed, float temperature = 0.8f) {
  SamplingParams params;
  params.temperature = temperature;
  params.seed = seed;
  return params;
}

inline DraftOpen MakeOpen(const std::string& mode, Tokens tokens,
                          const SamplingParams& sampling = {}) {
  DraftOpen open;
  open.prompt_length = static_cast<int64_t>(tokens.size());
  open.tokens = std::move(tokens);
  open.mode = *Mode::Parse(mode);
  open.sampling = sampling;
  return open;
}

inline DraftRound MakeRound(int64_t length, Tokens committed,
                            int32_t max_nodes = 64) {
  DraftRound round;
  round.length = length;
  round.committed = std::move(committed);
  round.max_nodes = max_nodes;
  return round;
}

// With room for any mode's defaults in a pass.
inline testing::FakeBackendOptions RoomyBackend() {
  testing::FakeBackendOptions options;
  options.max_rows = 1024;
  return options;
}

class EngineFixture {
 public:
  explicit EngineFixture(
      testing::FakeBackendOptions backend_options = RoomyBackend(),
      DraftEngineOptions options = {})
      : EngineFixture(std::make_unique<testing::FakeBackend>(backend_options),
                      options) {}

  EngineFixture(std::unique_ptr<testing::FakeBackend> backend,
                DraftEngineOptions options)
      : fake(backend.get()),
        engine(options, std::move(backend), [this] { return now; }) {}

  SessionId Open(DraftOpen open) {
    const auto key = engine.Open(std::move(open));
    EXPECT_TRUE(key.ok()) << key.status();
    return key.ok() ? *key : -1;
  }

  // Runs passes until nothing is left to do; what came of them by session.
  void RunAll() {
    while (engine.HasWork()) {
      DraftReport report = engine.RunPass();
      for (auto& answer : report.answers) {
        answers[answer.session] = std::move(answer.answer);
      }
      for (auto& failure : report.failures) {
        failures[failure.session] = failure.status;
      }
    }
  }

  DraftAnswer Ask(SessionId key, const DraftRound& round) {
    const absl::Status submitted = engine.Submit(key, round);
    EXPECT_TRUE(submitted.ok()) << submitted;
    RunAll();
    EXPECT_EQ(answers.count(key), 1u) << failures[key];
    return std::move(answers[key]);
  }

  absl::Time now = absl::UnixEpoch();
  testing::FakeBackend* fake;
  DraftEngine engine;
  std::map<SessionId, DraftAnswer> answers;
  std::map<SessionId, absl::Status> failures;
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_TESTS_UNIT_SERVICES_DRAFT_WORKER_DRAFT_FIXTURE_H_
