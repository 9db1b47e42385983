// Backend::Truncate, for every backend: what was cut off leaves no trace.
#ifndef FORETOKEN_TESTS_UNIT_INFER_TRUNCATE_CONTRACT_H_
#define FORETOKEN_TESTS_UNIT_INFER_TRUNCATE_CONTRACT_H_

#include <random>
#include <vector>

#include "common/infer/kv_cache.h"
#include "tests/unit/infer/one_by_one.h"

namespace foretoken::testing {

// `backend` has room for 20 pages; `reference` computes the same bits.
inline void ExpectTruncateLeavesAFreshPrefix(Backend& backend,
                                             Backend& reference) {
  const ModelConfig& config = backend.config();
  OneByOne one_by_one(reference);
  std::mt19937 random(31);
  const std::vector<TokenId> prompt = RandomTokens(100, config, random);
  const auto committed = [&](SessionId session) {
    return *backend.CommittedLength(session);
  };
  // The logits after `context` and one more token, which stays uncommitted.
  const auto expect_logits_after = [&](SessionId session,
                                       std::vector<TokenId> context) {
    const std::vector<TokenId> next = RandomTokens(1, config, random);
    const std::vector<int32_t> parents = {kRootParent};
    PassSession pass;
    pass.session = session;
    pass.tokens = next;
    pass.parents = parents;
    PassResult result;
    FORETOKEN_ASSERT_OK(backend.Forward({pass}, result));
    context.push_back(next[0]);
    EXPECT_TRUE(
        SameBits(RowLogits(backend, session, 0), one_by_one.Logits(context)))
        << "after " << context.size() << " tokens";
  };
  for (const char* scope : {"", "scope"}) {
    const SessionId mate = backend.Open(scope, prompt)->session;
    Append(backend, mate, {prompt.begin() + committed(mate), prompt.end()});
    const SessionId session = backend.Open(scope, prompt)->session;
    std::vector<TokenId> context(prompt.begin(),
                                 prompt.begin() + committed(session));
    // Into the last page, to its border, into a page that is shared, the next
    // one, and nothing; each followed by other tokens than were there.
    for (const int64_t length : {98, 96, 70, 64, 33, 5, 0}) {
      const std::vector<TokenId> more =
          RandomTokens(100 - context.size(), config, random);
      Append(backend, session, more);
      context.insert(context.end(), more.begin(), more.end());
      FORETOKEN_ASSERT_OK(backend.Reserve(session, 200));
      FORETOKEN_ASSERT_OK(backend.Truncate(session, length));
      context.resize(length);
      EXPECT_EQ(committed(session), length);
      expect_logits_after(session, context);
    }
    FORETOKEN_ASSERT_OK(backend.Truncate(session, 0));
    expect_logits_after(mate, prompt);
    FORETOKEN_ASSERT_OK(backend.Close(mate));
    FORETOKEN_ASSERT_OK(backend.Close(session));
    EXPECT_EQ(backend.kv_usage().pages_free, backend.kv_usage().pages_total);
    // What the cache still holds of the prompt is what the prompt says.
    const SessionId later = backend.Open(scope, prompt)->session;
    Append(backend, later, {prompt.begin() + committed(later), prompt.end()});
    expect_logits_after(later, prompt);
    FORETOKEN_ASSERT_OK(backend.Close(later));
  }
}

// Bad calls are named and change nothing; a good one gives pages back and drops
// the rows of the last pass.
inline void ExpectTruncateErrorsAndPages(Backend& backend) {
  std::mt19937 random(32);
  const std::vector<TokenId> tokens =
      RandomTokens(40, backend.config(), random);
  const int64_t all = backend.kv_usage().pages_free;
  const SessionId session = backend.Open("", {})->session;
  Append(backend, session, tokens);
  EXPECT_THAT(backend.Truncate(session, 41),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("to 41 tokens, want 0..40")));
  EXPECT_THAT(backend.Truncate(session, -1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("to -1 tokens, want 0..40")));
  EXPECT_THAT(backend.Truncate(session + 1, 0),
              StatusIs(absl::StatusCode::kNotFound,
                       ::testing::HasSubstr("no session")));
  EXPECT_EQ(*backend.CommittedLength(session), 40);
  FORETOKEN_ASSERT_OK(backend.Reserve(session, 100));
  EXPECT_EQ(backend.kv_usage().pages_free, all - 4);
  FORETOKEN_ASSERT_OK(backend.Truncate(session, 40));
  EXPECT_EQ(backend.kv_usage().pages_free, all - 2);

  PassSession pass;
  pass.session = session;
  const std::vector<int32_t> parents = {kRootParent};
  pass.tokens = absl::MakeConstSpan(tokens).first(1);
  pass.parents = parents;
  PassResult result;
  FORETOKEN_ASSERT_OK(backend.Forward({pass}, result));
  FORETOKEN_ASSERT_OK(backend.Truncate(session, 32));
  EXPECT_EQ(backend.kv_usage().pages_free, all - 1);
  EXPECT_THAT(backend.Commit(session, {0}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("not in the last pass")));
  EXPECT_EQ(*backend.CommittedLength(session), 32);
  FORETOKEN_ASSERT_OK(backend.Truncate(session, 0));
  EXPECT_EQ(backend.kv_usage().pages_free, all);
  FORETOKEN_ASSERT_OK(backend.Close(session));
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_INFER_TRUNCATE_CONTRACT_H_
