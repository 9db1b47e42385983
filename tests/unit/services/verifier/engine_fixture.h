// What tests of the VerifyEngine share: an engine over the fake backend, its
// requests, and what they should write.
#ifndef FORETOKEN_TESTS_UNIT_SERVICES_VERIFIER_ENGINE_FIXTURE_H_
#define FORETOKEN_TESTS_UNIT_SERVICES_VERIFIER_ENGINE_FIXTURE_H_

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "services/verifier/core/verify_engine.h"
#include "tests/support/fake_backend.h"

namespace foretoken::verifier {

// One engine over a fake backend, and a clock that stands still.
struct Fixture {
  explicit Fixture(testing::FakeBackendOptions backend_options = {},
                   VerifyEngineOptions options = {}) {
    auto owned = std::make_unique<testing::FakeBackend>(backend_options);
    backend = owned.get();
    engine = std::make_unique<VerifyEngine>(options, std::move(owned),
                                            [this] { return now; });
  }
  absl::Time now = absl::FromUnixSeconds(1000);
  testing::FakeBackend* backend;
  std::unique_ptr<VerifyEngine> engine;
};

inline SessionRequest Request(std::vector<TokenId> prompt, int64_t max_tokens) {
  SessionRequest request;
  request.prompt_length = static_cast<int64_t>(prompt.size());
  request.max_length = request.prompt_length + max_tokens;
  request.tokens = std::move(prompt);
  return request;
}

// Plain decoding by definition, one whole path at a time.
inline std::vector<TokenId> Decode(const SessionRequest& request,
                                   int32_t vocab_size) {
  SamplingState state(request.sampling, request.prompt_length, vocab_size);
  SamplingState::Scratch scratch;
  std::vector<TokenId> text = request.tokens;
  state.Append(text);
  std::vector<TokenId> output;
  while (static_cast<int64_t>(text.size()) < request.max_length) {
    const TokenId token =
        state.Sample(testing::FakeLogits(text, vocab_size), {}, scratch).token;
    text.push_back(token);
    state.Append({token});
    output.push_back(token);
    const auto& stops = request.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
  }
  return output;
}

}  // namespace foretoken::verifier

#endif  // FORETOKEN_TESTS_UNIT_SERVICES_VERIFIER_ENGINE_FIXTURE_H_
