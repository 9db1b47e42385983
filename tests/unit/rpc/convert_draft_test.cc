#include "common/rpc/convert_draft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "tests/support/status_matchers.h"

namespace foretoken::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DraftOpen SampleOpen() {
  DraftOpen open;
  open.tokens = {1, 5, 6, 7};
  open.prompt_length = 3;
  open.mode = *Mode::Parse("ngram_trie:n=5,match_length=2");
  open.sampling.temperature = 0.5f;
  open.sampling.seed = 99;
  open.sampling.min_tokens = 4;
  open.sampling.end_tokens = {2, 9};
  open.cache_scope = "team";
  open.request_id = "r-1";
  open.tokenizer_fingerprint = std::string(kFingerprintBytes, 'f');
  open.phrases = {{5, 6, 7}, {6, 7, 8}};
  return open;
}

//  root -+- n0:10 --- n1:11
//        +- n2:20
v1::DraftRound SampleRound() {
  DraftRound round;
  round.length = 9;
  round.committed = {10, 11, 12};
  round.verified.tree = *TokenTree::Create({10, 11, 20}, {-1, 0, -1});
  round.verified.row_tokens = {10, 11, 12, -1};
  round.verified.path = {0, 1};
  round.verified.candidates = CandidateRows::Of(
      {{{10, 0.0f}, {3, -1.0f}}, {{11, 0.0f}}, {{12, 0.0f}, {4, -20.0f}}, {}});
  round.max_nodes = 32;
  round.budget = absl::Milliseconds(5);
  round.phrases = {{1, 2}};
  round.hints.Add(13, round.hints.Add(12, -1, 0.5f), 0.25f);
  round.hints.parts = {DrafterId::kFusedRequest, DrafterId::kFusedPrior};
  round.token_time = absl::Microseconds(31500);
  round.row_ms = {1.5f, 2.0f};
  v1::DraftRound proto;
  ToProto(round, &proto);
  return proto;
}

TEST(ConvertDraftTest, AnOpenSurvivesTheWire) {
  v1::OpenDrafting proto;
  FORETOKEN_ASSERT_OK(ToProto(SampleOpen(), &proto));
  const auto got = FromProto(proto);
  FORETOKEN_ASSERT_OK(got.status());
  EXPECT_THAT(got->tokens, ElementsAre(1, 5, 6, 7));
  EXPECT_EQ(got->prompt_length, 3);
  EXPECT_EQ(got->mode.ToString(), "ngram_trie:n=5,match_length=2");
  EXPECT_EQ(got->sampling.temperature, 0.5f);
  EXPECT_EQ(got->sampling.seed, 99u);
  EXPECT_EQ(got->sampling.min_tokens, 4);
  EXPECT_THAT(got->sampling.end_tokens, ElementsAre(2, 9));
  EXPECT_EQ(got->cache_scope, "team");
  EXPECT_EQ(got->request_id, "r-1");
  EXPECT_EQ(got->tokenizer_fingerprint, SampleOpen().tokenizer_fingerprint);
  EXPECT_THAT(got->phrases,
              ElementsAre(ElementsAre(5, 6, 7), ElementsAre(6, 7, 8)));
}

TEST(ConvertDraftTest, ARoundSurvivesTheWire) {
  const auto got = FromProto(SampleRound());
  FORETOKEN_ASSERT_OK(got.status());
  EXPECT_EQ(got->length, 9);
  EXPECT_THAT(got->committed, ElementsAre(10, 11, 12));
  EXPECT_THAT(got->verified.tree.tokens(), ElementsAre(10, 11, 20));
  EXPECT_THAT(got->verified.tree.parents(), ElementsAre(-1, 0, -1));
  EXPECT_THAT(got->verified.row_tokens, ElementsAre(10, 11, 12, -1));
  EXPECT_THAT(got->verified.path, ElementsAre(0, 1));
  EXPECT_EQ(got->verified.candidates.width, 2);
  EXPECT_THAT(got->verified.candidates.tokens,
              ElementsAre(10, 3, 11, -1, 12, 4, -1, -1));
  EXPECT_THAT(got->verified.candidates.costs,
              ElementsAre(0, 16, 0, 255, 0, 255, 255, 255));
  EXPECT_EQ(got->max_nodes, 32);
  EXPECT_EQ(got->budget, absl::Milliseconds(5));
  EXPECT_THAT(got->phrases, ElementsAre(ElementsAre(1, 2)));
  EXPECT_THAT(got->hints.tokens, ElementsAre(12, 13));
  EXPECT_THAT(got->hints.parents, ElementsAre(-1, 0));
  EXPECT_THAT(got->hints.probs, ElementsAre(0.5f, 0.25f));
  EXPECT_THAT(got->hints.parts,
              ElementsAre(DrafterId::kFusedRequest, DrafterId::kFusedPrior));
  EXPECT_EQ(got->token_time, absl::Microseconds(31500));
  EXPECT_THAT(got->row_ms, ElementsAre(1.5f, 2.0f));
}

TEST(ConvertDraftTest, CostsThatAreNoCostsAreRefused) {
  const auto refused = [](absl::string_view field, auto change) {
    v1::DraftRound proto = SampleRound();
    change(proto);
    const absl::Status status = FromProto(proto).status();
    return absl::IsInvalidArgument(status) &&
           absl::StrContains(status.message(), field);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(refused("token_ms", [](auto& p) { p.set_token_ms(-1); }));
  EXPECT_TRUE(refused("token_ms", [&](auto& p) { p.set_token_ms(nan); }));
  EXPECT_TRUE(refused("row_ms", [](auto& p) { p.set_row_ms(1, -1); }));
  EXPECT_TRUE(refused("row_ms",
                      [&](auto& p) { p.add_row_ms(static_cast<float>(nan)); }));
  EXPECT_TRUE(refused("row_ms", [](auto& p) {
    while (p.row_ms_size() <= 256) p.add_row_ms(1);
  }));
}

TEST(ConvertDraftTest, CandidatesThatDoNotFitTheRowsAreRefused) {
  const auto refused = [](auto change) {
    v1::DraftRound proto = SampleRound();
    change(*proto.mutable_verified());
    const absl::Status status = FromProto(proto).status();
    return absl::IsInvalidArgument(status) &&
           absl::StrContains(status.message(), "verified.candidates");
  };
  EXPECT_TRUE(refused([](auto& tree) { tree.set_candidates_per_row(9); }));
  EXPECT_TRUE(refused([](auto& tree) { tree.set_candidates_per_row(-1); }));
  EXPECT_TRUE(refused([](auto& tree) { tree.set_candidates_per_row(0); }));
  EXPECT_TRUE(refused([](auto& tree) { tree.set_candidates(0, -2); }));
  EXPECT_TRUE(refused([](auto& tree) { tree.add_candidates(1); }));
  EXPECT_TRUE(refused([](auto& tree) { tree.clear_candidate_costs(); }));
}

TEST(ConvertDraftTest, ARoundWithoutTreeAndBudgetHasNone) {
  DraftRound round;
  round.length = 4;
  v1::DraftRound proto;
  ToProto(round, &proto);
  EXPECT_FALSE(proto.has_verified());
  const auto got = FromProto(proto);
  FORETOKEN_ASSERT_OK(got.status());
  EXPECT_TRUE(got->verified.tree.empty());
  EXPECT_THAT(got->verified.row_tokens, IsEmpty());
  EXPECT_EQ(got->budget, absl::InfiniteDuration());
  EXPECT_EQ(got->hints.size(), 0);
  EXPECT_EQ(got->token_time, absl::ZeroDuration());
  EXPECT_THAT(got->row_ms, IsEmpty());
}

TEST(ConvertDraftTest, ABudgetThatRanOutIsNotUnlimited) {
  DraftRound round;
  round.budget = -absl::Milliseconds(3);
  v1::DraftRound proto;
  ToProto(round, &proto);
  const auto got = FromProto(proto);
  FORETOKEN_ASSERT_OK(got.status());
  EXPECT_EQ(got->budget, absl::Microseconds(1));
}

TEST(ConvertDraftTest, AnAnswerSurvivesTheWire) {
  DraftAnswer answer;
  answer.length = 12;
  answer.tree.Add(7, answer.tree.Add(6, -1, 0.5f), 0.25f);
  answer.tree.parts = {DrafterId::kFusedRequest, DrafterId::kFusedPrior};
  answer.phrases = {{6, 7}};
  answer.draft_time = absl::Microseconds(1500);
  answer.shortened = true;
  v1::DraftResponse proto;
  ToProto(answer, &proto);
  const auto got = FromProto(proto);
  FORETOKEN_ASSERT_OK(got.status());
  EXPECT_EQ(got->length, 12);
  EXPECT_THAT(got->tree.tokens, ElementsAre(6, 7));
  EXPECT_THAT(got->tree.parents, ElementsAre(-1, 0));
  EXPECT_THAT(got->tree.probs, ElementsAre(0.5f, 0.25f));
  EXPECT_EQ(proto.tree().proposers(0), 1u << v1::DRAFTER_FUSED_REQUEST);
  EXPECT_EQ(got->tree.parts, answer.tree.parts);
  EXPECT_THAT(got->phrases, ElementsAre(ElementsAre(6, 7)));
  EXPECT_EQ(got->draft_time, absl::Microseconds(1500));
  EXPECT_TRUE(got->shortened);
}

TEST(ConvertDraftTest, AnOpenIsRefusedByField) {
  const auto refused = [](auto change) {
    v1::OpenDrafting proto;
    FORETOKEN_EXPECT_OK(ToProto(SampleOpen(), &proto));
    change(proto);
    const absl::Status status = FromProto(proto).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](auto& p) { p.set_token_ids(1, -5); }),
              HasSubstr("token_ids[1]"));
  EXPECT_THAT(refused([](auto& p) { p.set_end_tokens(0, -1); }),
              HasSubstr("end_tokens[0]"));
  EXPECT_THAT(refused([](auto& p) {
                for (size_t i = 0; i <= kMaxTokenListSize; ++i) {
                  p.add_end_tokens(1);
                }
              }),
              HasSubstr("end_tokens: "));
  EXPECT_THAT(refused([](auto& p) { p.set_prompt_length(0); }),
              HasSubstr("prompt_length: 0"));
  EXPECT_THAT(refused([](auto& p) { p.set_prompt_length(5); }),
              HasSubstr("prompt_length: 5"));
  EXPECT_THAT(refused([](auto& p) { p.clear_speculation(); }),
              HasSubstr("speculation"));
  EXPECT_THAT(refused([](auto& p) {
                p.mutable_speculation()->mutable_ngram_trie()->set_n(99);
              }),
              HasSubstr("'n' is '99'"));
  EXPECT_THAT(refused([](auto& p) {
                p.mutable_speculation()->mutable_draft_model()->set_gamma(0);
              }),
              HasSubstr("'gamma' is '0'"));
  EXPECT_THAT(refused([](auto& p) { p.set_request_id("two words"); }),
              HasSubstr("request_id"));
  EXPECT_THAT(
      refused([](auto& p) { p.set_cache_scope(std::string(257, 's')); }),
      HasSubstr("cache_scope"));
  EXPECT_THAT(refused([](auto& p) { p.set_tokenizer_fingerprint("short"); }),
              HasSubstr("tokenizer_fingerprint"));
  EXPECT_THAT(refused([](auto& p) { p.mutable_phrases(0)->clear_tokens(); }),
              HasSubstr("phrases"));
  EXPECT_THAT(refused([](auto& p) {
                for (int i = 0; i < kMaxPhraseTokens; ++i) {
                  p.mutable_phrases(0)->add_tokens(1);
                }
              }),
              HasSubstr("phrases"));
}

TEST(ConvertDraftTest, ARoundIsRefusedByField) {
  const auto refused = [](auto change) {
    v1::DraftRound proto = SampleRound();
    change(proto);
    const absl::Status status = FromProto(proto).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](auto& p) { p.set_committed(0, -1); }),
              HasSubstr("committed[0]"));
  EXPECT_THAT(refused([](auto& p) { p.set_max_nodes(-1); }),
              HasSubstr("max_nodes: -1"));
  EXPECT_THAT(refused([](auto& p) { p.set_max_nodes(kMaxTreeNodes + 1); }),
              HasSubstr("max_nodes"));
  EXPECT_THAT(refused([](auto& p) {
                p.set_budget_ms(std::numeric_limits<double>::quiet_NaN());
              }),
              HasSubstr("budget_ms"));
  EXPECT_THAT(refused([](auto& p) {
                p.mutable_verified()->mutable_tree()->set_parents(1, 1);
              }),
              HasSubstr("node 1"));
  EXPECT_THAT(refused([](auto& p) {
                p.mutable_verified()->mutable_tree()->set_tokens(2, -20);
              }),
              HasSubstr("node 2"));
  EXPECT_THAT(refused([](auto& p) { p.mutable_verified()->add_row_tokens(1); }),
              HasSubstr("verified.row_tokens: 5"));
  EXPECT_THAT(
      refused([](auto& p) { p.mutable_verified()->set_row_tokens(0, -2); }),
      HasSubstr("verified.row_tokens[0]"));
  // Node 2 is no child of node 0; node 7 is none at all.
  EXPECT_THAT(refused([](auto& p) { p.mutable_verified()->set_path(1, 2); }),
              HasSubstr("verified.path: node 2"));
  EXPECT_THAT(refused([](auto& p) { p.mutable_verified()->set_path(0, 7); }),
              HasSubstr("verified.path: node 7"));
}

TEST(ConvertDraftTest, AnAnswerIsRefusedByField) {
  v1::DraftResponse proto;
  proto.mutable_tree()->add_tokens(4);
  proto.mutable_tree()->add_parents(-1);
  proto.mutable_tree()->add_probabilities(
      std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(proto).status()));
  proto.mutable_tree()->set_probabilities(0, 1.5f);
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(proto).status()));
  proto.mutable_tree()->set_probabilities(0, 1.0f);
  FORETOKEN_EXPECT_OK(FromProto(proto).status());
  proto.mutable_tree()->add_probabilities(1.0f);
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(proto).status()));
}

TEST(ConvertDraftTest, AnAnswerThatIsNotATreeIsRefused) {
  const auto refused = [](auto change) {
    v1::DraftResponse proto;
    v1::TokenTree& tree = *proto.mutable_tree();
    for (const TokenId token : {1, 2}) {
      tree.add_tokens(token);
      tree.add_parents(token - 2);
      tree.add_probabilities(0.5f);
      tree.add_proposers(1u << v1::DRAFTER_FUSED_PRIOR);
    }
    FORETOKEN_EXPECT_OK(FromProto(proto).status());
    change(tree);
    return absl::IsInvalidArgument(FromProto(proto).status());
  };
  EXPECT_TRUE(refused([](auto& tree) { tree.set_parents(1, 5); }));
  EXPECT_TRUE(refused([](auto& tree) { tree.set_parents(1, 1); }));
  EXPECT_TRUE(refused([](auto& tree) { tree.set_parents(0, -2); }));
  EXPECT_TRUE(refused([](auto& tree) { tree.add_parents(0); }));
  EXPECT_TRUE(refused([](auto& tree) { tree.mutable_parents()->Clear(); }));
  EXPECT_TRUE(refused([](auto& tree) { tree.add_probabilities(0.5f); }));
  EXPECT_TRUE(refused([](auto& tree) { tree.add_proposers(1); }));
}

TEST(ConvertDraftTest, AnAnswerWithoutEstimatesHasZeros) {
  v1::DraftResponse proto;
  proto.mutable_tree()->add_tokens(4);
  proto.mutable_tree()->add_parents(-1);
  const auto got = FromProto(proto);
  FORETOKEN_ASSERT_OK(got.status());
  EXPECT_THAT(got->tree.probs, ElementsAre(0.0f));
}

}  // namespace
}  // namespace foretoken::rpc
