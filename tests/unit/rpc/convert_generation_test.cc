#include "common/rpc/convert_generation.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::rpc {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ConvertGenerationTest, ARequestComesBack) {
  GenerationRequest request;
  request.prompt = {1, 2, 3};
  request.sampling.temperature = 0.5f;
  request.sampling.seed = 9;
  request.mode = *Mode::Parse("prompt_lookup:max_n=2");
  request.max_tree_nodes = 16;
  request.max_tokens = 77;
  request.stop_token_ids = {4, 5};
  request.stop_strings = {"a", "b"};
  request.ignore_eos = true;
  request.cache_scope = "scope";
  request.prefix_scope = "pages";
  request.request_id = "id";
  request.want_round_trees = true;
  request.pooling = Pooling::kMean;
  request.constraint = {Constraint::Kind::kJsonSchema, "{}", {}};
  v1::GenerateRequest proto;
  FORETOKEN_ASSERT_OK(ToProto(request, &proto));
  const auto got = FromProto(proto);
  FORETOKEN_ASSERT_OK(got);
  EXPECT_EQ(got->text, std::nullopt);
  EXPECT_EQ(got->prompt, request.prompt);
  EXPECT_EQ(got->sampling.temperature, 0.5f);
  EXPECT_TRUE(got->has_seed);
  EXPECT_EQ(got->sampling.seed, 9u);
  EXPECT_EQ(got->mode->ToString(), "prompt_lookup:max_n=2");
  EXPECT_EQ(got->max_tree_nodes, 16);
  EXPECT_EQ(got->max_tokens, 77);
  EXPECT_EQ(got->stop_token_ids, request.stop_token_ids);
  EXPECT_EQ(got->stop_strings, request.stop_strings);
  EXPECT_TRUE(got->ignore_eos);
  EXPECT_EQ(got->cache_scope, "scope");
  EXPECT_EQ(got->prefix_scope, "pages");
  EXPECT_EQ(got->request_id, "id");
  EXPECT_TRUE(got->want_round_trees);
  EXPECT_EQ(got->pooling, Pooling::kMean);
  EXPECT_EQ(got->constraint, request.constraint);
}

TEST(ConvertGenerationTest, WhatIsUnsetStaysUnset) {
  GenerationRequest request;
  request.text = "a text";
  request.has_seed = false;
  request.max_tokens = int64_t{1} << 40;
  v1::GenerateRequest proto;
  FORETOKEN_ASSERT_OK(ToProto(request, &proto));
  EXPECT_FALSE(proto.has_speculation());
  EXPECT_FALSE(proto.has_constraint());
  const auto got = FromProto(proto);
  FORETOKEN_ASSERT_OK(got);
  EXPECT_EQ(got->text, "a text");
  EXPECT_FALSE(got->has_seed);
  EXPECT_FALSE(got->mode.has_value());
  EXPECT_FALSE(got->want_round_trees);
  EXPECT_TRUE(got->constraint.empty());
  EXPECT_FALSE(got->max_tree_nodes.has_value());
  EXPECT_EQ(got->max_tokens, (int64_t{1} << 31) - 1);
  EXPECT_EQ(FromProto(v1::GenerateRequest()).status().message(),
            "prompt: want text or token_ids");
  proto.clear_max_tokens();
  EXPECT_EQ(FromProto(proto)->max_tokens, GenerationRequest().max_tokens);
}

TEST(ConvertGenerationTest, BadParametersAreRefusedByField) {
  v1::GenerateRequest proto;
  proto.set_text("a");
  proto.mutable_speculation()->mutable_draft_model()->set_gamma(0);
  EXPECT_THAT(FromProto(proto), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("'gamma' is '0'")));
  proto.clear_speculation();
  proto.mutable_constraint();
  EXPECT_THAT(FromProto(proto), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("constraint: want")));
}

// Before they are copied: a message may hold millions.
TEST(ConvertGenerationTest, LongListsAreRefusedByField) {
  v1::GenerateRequest ids;
  ids.set_text("a");
  for (int i = 0; i < 1025; ++i) ids.add_stop_token_ids(7);
  EXPECT_THAT(FromProto(ids), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("stop_token_ids: 1025")));
  v1::GenerateRequest many;
  many.set_text("a");
  for (int i = 0; i < 65; ++i) many.add_stop("x");
  EXPECT_THAT(FromProto(many), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("stop: 65")));
  v1::GenerateRequest large;
  large.set_text("a");
  large.add_stop(std::string(1025, 'x'));
  EXPECT_THAT(FromProto(large), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("1025 bytes")));
}

TEST(ConvertGenerationTest, ALongFingerprintIsRefused) {
  v1::GenerateRequest proto;
  proto.set_text("a");
  proto.set_numerics_fingerprint(std::string(kMaxFingerprintBytes, 'x'));
  FORETOKEN_EXPECT_OK(FromProto(proto));
  proto.set_numerics_fingerprint(std::string(kMaxFingerprintBytes + 1, 'x'));
  EXPECT_THAT(FromProto(proto),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("numerics_fingerprint: 1025 bytes")));
}

TEST(ConvertGenerationTest, ADeltaComesBack) {
  GenerationDelta delta;
  delta.start = {"numerics", 42, "id"};
  delta.text = "ab";
  delta.token_ids = {7, 8};
  delta.drafters = {DrafterId::kFusedRequest, DrafterId::kTarget};
  SampledToken token;
  token.token = 7;
  token.logprob = -0.5f;
  token.top_logprobs = {{7, -0.5f}, {9, -1.5f}};
  delta.logprobs = {token};
  v1::GenerateDelta proto;
  ToProto(delta, &proto);
  EXPECT_THAT(proto.drafters(),
              ElementsAre(v1::DRAFTER_FUSED_REQUEST, v1::DRAFTER_UNSPECIFIED));
  const GenerationDelta got = FromProto(proto);
  ASSERT_TRUE(got.start.has_value());
  EXPECT_EQ(got.start->numerics_fingerprint, "numerics");
  EXPECT_EQ(got.start->seed, 42u);
  EXPECT_EQ(got.start->request_id, "id");
  EXPECT_EQ(got.text, "ab");
  EXPECT_EQ(got.token_ids, delta.token_ids);
  EXPECT_EQ(got.drafters, delta.drafters);
  ASSERT_EQ(got.logprobs.size(), 1u);
  EXPECT_EQ(got.logprobs[0].token, 7);
  EXPECT_EQ(got.logprobs[0].top_logprobs.size(), 2u);
  EXPECT_FALSE(proto.has_round_tree());
  EXPECT_FALSE(got.round_tree.has_value());
}

TEST(ConvertGenerationTest, ARoundTreeComesBack) {
  GenerationDelta delta;
  RoundTree& sent = delta.round_tree.emplace();
  sent.nodes.Add(7, -1, 0.75f);
  sent.nodes.Add(8, -1, 0.25f);
  sent.nodes.Add(9, 0, 0.5f);
  sent.nodes.parts = {DrafterId::kFusedPrior, DrafterId::kDraftModel,
                      DrafterId::kFusedRequest};
  sent.accepted = {true, false, true};
  sent.committed = {7, 9, 4};
  v1::GenerateDelta proto;
  ToProto(delta, &proto);
  EXPECT_THAT(proto.round_tree().path(), ElementsAre(0, 2));
  const GenerationDelta got = FromProto(proto);
  ASSERT_TRUE(got.round_tree.has_value());
  EXPECT_THAT(got.round_tree->committed, ElementsAre(7, 9, 4));
  EXPECT_EQ(got.round_tree->nodes, sent.nodes);
  EXPECT_EQ(got.round_tree->accepted, sent.accepted);
}

// A delta that holds nothing else is output, too.
TEST(ConvertGenerationTest, ARoundWithoutNodesIsARound) {
  GenerationDelta delta;
  EXPECT_TRUE(delta.empty());
  delta.round_tree.emplace().committed = {4};
  EXPECT_FALSE(delta.empty());
  v1::GenerateDelta proto;
  ToProto(delta, &proto);
  ASSERT_TRUE(FromProto(proto).round_tree.has_value());
  EXPECT_THAT(FromProto(proto).round_tree->committed, ElementsAre(4));
}

TEST(ConvertGenerationTest, ABrokenRoundTreeKeepsWhatIsWhole) {
  v1::GenerateDelta proto;
  v1::RoundTree& tree = *proto.mutable_round_tree();
  for (const int parent : {-7, 2, 0}) {
    tree.add_tokens(5);
    tree.add_parents(parent);
    tree.add_probabilities(0.5f);
  }
  tree.add_drafters(v1::DRAFTER_CREST);
  tree.add_drafters(v1::DRAFTER_CREST);
  for (const int node : {-1, 1, 2}) tree.add_path(node);
  const RoundTree got = *FromProto(proto).round_tree;
  EXPECT_EQ(got.nodes.size(), 2);
  EXPECT_THAT(got.nodes.parents, ElementsAre(-1, -1));
  EXPECT_THAT(got.accepted, ElementsAre(false, true));
}

TEST(ConvertGenerationTest, ASummaryComesBack) {
  GenerationSummary summary;
  summary.request_id = "id";
  summary.mode = "auto";
  summary.seed = 5;
  summary.prompt = {1, 2};
  summary.finish = FinishReason::kStop;
  summary.stop_string = "end";
  summary.prompt_tokens = 2;
  summary.completion_tokens = 11;
  summary.reused_tokens = 1;
  summary.rounds = 4;
  summary.drafted = 12;
  summary.accepted = 6;
  summary.by_drafter = {{DrafterId::kFused, 12, 6, 4, 1, 2}};
  summary.time_to_first_token = absl::Milliseconds(3);
  summary.decoded_tokens = 10;
  summary.decode_time = absl::Seconds(2);
  summary.draft_time = absl::Milliseconds(4);
  summary.verify_time = absl::Milliseconds(5);
  summary.total_time = absl::Milliseconds(2010);
  summary.embedding = {1.0f, 0.0f};
  v1::GenerateResult proto;
  ToProto(summary, &proto);
  EXPECT_EQ(proto.speculation().accept_length(), 2.5);
  EXPECT_EQ(proto.timing().decode_tokens_per_s(), 5.0);
  const GenerationSummary got = FromProto(proto);
  EXPECT_EQ(got.request_id, "id");
  EXPECT_EQ(got.mode, "auto");
  EXPECT_EQ(got.seed, 5u);
  EXPECT_EQ(got.prompt, summary.prompt);
  EXPECT_EQ(got.finish, FinishReason::kStop);
  EXPECT_EQ(got.stop_string, "end");
  EXPECT_EQ(got.embedding, summary.embedding);
  EXPECT_EQ(got.prompt_tokens, 2);
  EXPECT_EQ(got.completion_tokens, 11);
  EXPECT_EQ(got.reused_tokens, 1);
  EXPECT_EQ(got.accept_length(), 2.5);
  EXPECT_EQ(got.drafted, 12);
  ASSERT_EQ(got.by_drafter.size(), 1u);
  EXPECT_EQ(got.by_drafter[0].id, DrafterId::kFused);
  EXPECT_EQ(got.by_drafter[0].degraded, 1);
  EXPECT_EQ(got.by_drafter[0].shortened, 2);
  EXPECT_EQ(got.time_to_first_token, absl::Milliseconds(3));
  EXPECT_EQ(got.tokens_per_second(), 5.0);
  EXPECT_EQ(got.total_time, absl::Milliseconds(2010));
}

}  // namespace
}  // namespace foretoken::rpc
