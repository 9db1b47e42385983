// Drives many sessions through a VerifyEngine at once, with drafts that are
// partly right, and hands back what each of them wrote.
#ifndef FORETOKEN_TESTS_UNIT_SERVICES_VERIFIER_ENGINE_SCRIPT_H_
#define FORETOKEN_TESTS_UNIT_SERVICES_VERIFIER_ENGINE_SCRIPT_H_

#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "common/speculation/round.h"
#include "gtest/gtest.h"
#include "services/verifier/core/verify_engine.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {

// A tree of `nodes` random tokens around the true continuation `truth`: parts
// of it are right, some rows are probes, some tokens nonsense.
inline RoundRequest RandomRound(std::mt19937& random, int64_t length, int nodes,
                                const std::vector<TokenId>& truth,
                                int32_t vocab_size) {
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;
  std::vector<int32_t> probes;
  std::vector<size_t> depth;
  RoundRequest round;
  for (int i = 0; i < nodes; ++i) {
    // Mostly on from the last node, so that paths get long.
    const int32_t parent = random() % 3 != 0
                               ? i - 1
                               : static_cast<int32_t>(random() % (i + 1)) - 1;
    const size_t at = parent < 0 ? 0 : depth[parent] + 1;
    TokenId token = static_cast<TokenId>(random() % vocab_size);
    if (at < truth.size() && random() % 8 != 0) token = truth[at];
    if (random() % 50 == 0) token = vocab_size + 3;
    tokens.push_back(token);
    parents.push_back(parent);
    depth.push_back(at);
    if (random() % 10 == 0) probes.push_back(i);
  }
  round.length = length;
  round.tree = TokenTree::Create(tokens, parents, probes).value();
  return round;
}

struct ScriptResult {
  std::vector<TokenId> output;
  FinishReason finish = FinishReason::kNone;
  int64_t rounds = 0;
  int64_t accepted = 0;
};

// Opens all requests, runs them to their ends. truths[i] is the text that
// request i should write (empty: no drafts); `max_nodes` of each round's tree.
inline std::vector<ScriptResult> RunSessions(
    verifier::VerifyEngine& engine, const std::vector<SessionRequest>& requests,
    const std::vector<std::vector<TokenId>>& truths, int max_nodes,
    uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<ScriptResult> results(requests.size());
  std::map<SessionId, size_t> index;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto key = engine.Open(requests[i]);
    EXPECT_THAT(key, IsOk());
    index[*key] = i;
  }
  size_t open = requests.size();
  const auto next = [&](SessionId key, FinishReason finish) {
    ScriptResult& result = results[index[key]];
    result.finish = finish;
    if (finish != FinishReason::kNone) {
      EXPECT_THAT(engine.Close(key), IsOk());
      --open;
      return;
    }
    RoundRequest round;
    const SessionRequest& request = requests[index[key]];
    round.length =
        request.prompt_length + static_cast<int64_t>(result.output.size());
    const std::vector<TokenId>& truth = truths[index[key]];
    if (!truth.empty() && random() % 5 != 0) {
      const std::vector<TokenId> rest(
          truth.begin() + std::min(truth.size(), result.output.size()),
          truth.end());
      round = RandomRound(random, round.length, random() % (max_nodes + 1),
                          rest, engine.model().vocab_size);
    }
    EXPECT_THAT(engine.Submit(key, std::move(round)), IsOk());
  };
  for (int pass = 0; open > 0; ++pass) {
    EXPECT_TRUE(engine.HasWork());
    if (!engine.HasWork() || pass > 100000) break;
    const verifier::PassReport report = engine.RunPass();
    EXPECT_TRUE(report.failures.empty());
    for (const auto& [key, result] : report.prefilled) {
      for (const SampledToken& token : result.tokens) {
        results[index[key]].output.push_back(token.token);
      }
      next(key, result.finish);
    }
    for (const auto& [key, result] : report.rounds) {
      ScriptResult& mine = results[index[key]];
      for (const SampledToken& token : result.tokens) {
        mine.output.push_back(token.token);
      }
      ++mine.rounds;
      mine.accepted += result.stats.accepted;
      EXPECT_EQ(result.tokens.size(), result.path.size() + 1);
      next(key, result.finish);
    }
    if (!report.failures.empty()) break;
  }
  return results;
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_SERVICES_VERIFIER_ENGINE_SCRIPT_H_
