// Row invariance, for every backend: what a row computes does not depend on the
// rows, sessions and caches beside it. Every comparison is bitwise.
#ifndef FORETOKEN_TESTS_UNIT_INFER_INVARIANCE_CONTRACT_H_
#define FORETOKEN_TESTS_UNIT_INFER_INVARIANCE_CONTRACT_H_

#include <algorithm>
#include <random>
#include <vector>

#include "tests/unit/infer/one_by_one.h"

namespace foretoken::testing {

// Runs the tree after the session's context, `context`, and compares every row
// with one token at a time.
inline void ExpectTreeEqualsOneByOne(Backend& backend, SessionId session,
                                     OneByOne& one_by_one,
                                     const std::vector<TokenId>& context,
                                     const std::vector<TokenId>& tokens,
                                     const std::vector<int32_t>& parents) {
  PassSession pass;
  pass.session = session;
  pass.tokens = tokens;
  pass.parents = parents;
  PassResult result;
  FORETOKEN_ASSERT_OK(backend.Forward({pass}, result));
  ASSERT_EQ(result.outputs[0].size(), tokens.size());
  for (size_t r = 0; r < tokens.size(); ++r) {
    const Bits& want = one_by_one.Logits(PathTo(context, tokens, parents, r));
    ASSERT_TRUE(SameBits(RowLogits(backend, session, r), want))
        << "row " << r << " of " << tokens.size() << " after " << context.size()
        << " tokens";
    ASSERT_EQ(result.outputs[0][r].token,
              std::max_element(want.begin(), want.end()) - want.begin());
  }
}

// The same in a session of its own, which begins with `context`.
inline void ExpectFreshTreeEqualsOneByOne(Backend& backend,
                                          OneByOne& one_by_one,
                                          const std::vector<TokenId>& context,
                                          const std::vector<TokenId>& tokens,
                                          const std::vector<int32_t>& parents) {
  const auto opened = backend.Open("", {});
  FORETOKEN_ASSERT_OK(opened);
  if (!context.empty()) Append(backend, opened->session, context);
  ExpectTreeEqualsOneByOne(backend, opened->session, one_by_one, context,
                           tokens, parents);
  FORETOKEN_ASSERT_OK(backend.Close(opened->session));
}

// One pass of `mates` sessions; a session alone has 64 rows.
inline void ExpectBatchMatesChangeNothing(Backend& backend,
                                          OneByOne& one_by_one, int mates,
                                          std::mt19937& random) {
  const ModelConfig& config = backend.config();
  std::vector<std::vector<TokenId>> contexts, tokens;
  std::vector<std::vector<int32_t>> parents;
  std::vector<PassSession> pass(mates);
  for (int s = 0; s < mates; ++s) {
    const auto opened = backend.Open("", {});
    FORETOKEN_ASSERT_OK(opened);
    pass[s].session = opened->session;
    contexts.push_back(RandomTokens(random() % 70, config, random));
    const int rows = mates == 1 ? 64 : 1 + random() % 12;
    tokens.push_back(RandomTokens(rows, config, random));
    parents.push_back(RandomParents(rows, s % 3 == 0 ? 2 : s % 3, random));
    if (!contexts[s].empty()) Append(backend, pass[s].session, contexts[s]);
  }
  for (int s = 0; s < mates; ++s) {
    pass[s].tokens = tokens[s];
    pass[s].parents = parents[s];
  }
  PassResult result;
  FORETOKEN_ASSERT_OK(backend.Forward(pass, result));
  for (int s = 0; s < mates; ++s) {
    for (size_t r = 0; r < tokens[s].size(); ++r) {
      const Bits& want =
          one_by_one.Logits(PathTo(contexts[s], tokens[s], parents[s], r));
      ASSERT_TRUE(SameBits(RowLogits(backend, pass[s].session, r), want))
          << "session " << s << " of " << mates << ", row " << r;
      ASSERT_EQ(result.outputs[s][r].token,
                std::max_element(want.begin(), want.end()) - want.begin());
    }
    FORETOKEN_ASSERT_OK(backend.Close(pass[s].session));
  }
  EXPECT_EQ(backend.kv_usage().pages_free, backend.kv_usage().pages_total);
}

inline void ExpectAReusedPrefixChangesNothing(Backend& backend,
                                              OneByOne& one_by_one,
                                              std::mt19937& random) {
  const ModelConfig& config = backend.config();
  const std::vector<TokenId> prompt = RandomTokens(150, config, random);
  const std::vector<TokenId> tokens = RandomTokens(12, config, random);
  const std::vector<int32_t> parents = RandomParents(12, 2, random);
  for (const int64_t want_reused : {0, 128, 128}) {
    const auto opened = backend.Open("scope", prompt);
    FORETOKEN_ASSERT_OK(opened);
    ASSERT_EQ(opened->reused_tokens, want_reused);
    Append(backend, opened->session,
           {prompt.begin() + want_reused, prompt.end()});
    ExpectTreeEqualsOneByOne(backend, opened->session, one_by_one, prompt,
                             tokens, parents);
    FORETOKEN_ASSERT_OK(backend.Close(opened->session));
    EXPECT_EQ(backend.kv_usage().pages_free, backend.kv_usage().pages_total);
    EXPECT_EQ(backend.kv_usage().pages_cached, 4);
  }
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_INFER_INVARIANCE_CONTRACT_H_
