#include "common/rpc/convert.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::rpc {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Through bytes, as messages travel.
template <typename Proto>
Proto OverTheWire(const Proto& message) {
  Proto copy;
  EXPECT_TRUE(copy.ParseFromString(message.SerializeAsString()));
  return copy;
}

SamplingParams EveryParameter() {
  SamplingParams params;
  params.temperature = 0.8f;
  params.top_k = 40;
  params.top_p = 0.9f;
  params.min_p = 0.05f;
  params.repetition_penalty = 1.1f;
  params.presence_penalty = -0.5f;
  params.frequency_penalty = 0.25f;
  params.logit_bias = {{3, -1.5f}, {70000, 2.0f}};
  params.seed = std::numeric_limits<uint64_t>::max();
  params.min_tokens = 7;
  params.logprobs = 0;
  return params;
}

TEST(ConvertTest, EverySamplingParameterComesBack) {
  const SamplingParams params = EveryParameter();
  v1::SamplingParams proto;
  ToProto(params, &proto);
  const auto got = FromProto(OverTheWire(proto));
  FORETOKEN_ASSERT_OK(got);
  EXPECT_EQ(got->temperature, params.temperature);
  EXPECT_EQ(got->top_k, params.top_k);
  EXPECT_EQ(got->top_p, params.top_p);
  EXPECT_EQ(got->min_p, params.min_p);
  EXPECT_EQ(got->repetition_penalty, params.repetition_penalty);
  EXPECT_EQ(got->presence_penalty, params.presence_penalty);
  EXPECT_EQ(got->frequency_penalty, params.frequency_penalty);
  EXPECT_THAT(got->logit_bias,
              UnorderedElementsAre(Pair(3, -1.5f), Pair(70000, 2.0f)));
  EXPECT_EQ(got->seed, params.seed);
  EXPECT_EQ(got->min_tokens, params.min_tokens);
  EXPECT_EQ(got->logprobs, 0);
}

TEST(ConvertTest, AnEmptyMessageMeansTheDefaults) {
  const auto got = FromProto(v1::SamplingParams());
  FORETOKEN_ASSERT_OK(got);
  const SamplingParams defaults;
  EXPECT_EQ(got->temperature, 0.0f);
  EXPECT_EQ(got->top_p, defaults.top_p);
  EXPECT_EQ(got->repetition_penalty, defaults.repetition_penalty);
  EXPECT_EQ(got->logprobs, -1);
}

TEST(ConvertTest, SamplingMessagesOfNoMeaningAreRefused) {
  v1::SamplingParams proto;
  proto.set_logprobs(-1);
  EXPECT_THAT(FromProto(proto), StatusIs(kInvalid, HasSubstr("logprobs")));
  proto.Clear();
  for (int token = 0; token <= static_cast<int>(kMaxTokenListSize); ++token) {
    (*proto.mutable_logit_bias())[token] = 1.0f;
  }
  EXPECT_THAT(FromProto(proto), StatusIs(kInvalid, HasSubstr("logit_bias")));
}

TEST(ConvertTest, ASessionsOpeningComesBack) {
  SessionRequest request;
  request.cache_scope = "tenant-1";
  request.tokens = {5, 6, 7, 8};
  request.prompt_length = 3;
  request.max_length = 100;
  request.sampling = EveryParameter();
  request.sampling.end_tokens = {2, 9};
  request.stop_tokens = {2, 9, 11};
  request.request_id = "id";
  request.want_row_tokens = true;
  request.numerics_fingerprint = "fp";
  request.pooling = Pooling::kLast;
  v1::OpenSession proto;
  ToProto(request, &proto);
  const auto got = FromProto(OverTheWire(proto));
  FORETOKEN_ASSERT_OK(got);
  EXPECT_EQ(got->cache_scope, "tenant-1");
  EXPECT_THAT(got->tokens, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(got->prompt_length, 3);
  EXPECT_EQ(got->max_length, 100);
  EXPECT_EQ(got->sampling.seed, request.sampling.seed);
  EXPECT_THAT(got->sampling.end_tokens, ElementsAre(2, 9));
  EXPECT_THAT(got->stop_tokens, ElementsAre(2, 9, 11));
  EXPECT_EQ(got->request_id, "id");
  EXPECT_TRUE(got->want_row_tokens);
  EXPECT_EQ(got->numerics_fingerprint, "fp");
  EXPECT_EQ(got->pooling, Pooling::kLast);
  proto.set_pooling(static_cast<v1::Pooling>(9));
  EXPECT_THAT(FromProto(OverTheWire(proto)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("pooling: 9")));
}

TEST(ConvertTest, OpeningsBeyondTheirBoundsAreRefusedByField) {
  v1::OpenSession proto;
  for (size_t i = 0; i <= kMaxTokenListSize; ++i) proto.add_stop_tokens(1);
  EXPECT_THAT(FromProto(proto), StatusIs(kInvalid, HasSubstr("stop_tokens")));
  proto.Clear();
  for (size_t i = 0; i <= kMaxTokenListSize; ++i) proto.add_end_tokens(1);
  EXPECT_THAT(FromProto(proto), StatusIs(kInvalid, HasSubstr("end_tokens")));
  proto.Clear();
  proto.set_request_id("two words");
  EXPECT_THAT(FromProto(proto), StatusIs(kInvalid, HasSubstr("request_id")));
  proto.Clear();
  proto.set_cache_scope(std::string(kMaxCacheScopeBytes + 1, 'x'));
  EXPECT_THAT(FromProto(proto), StatusIs(kInvalid, HasSubstr("cache_scope")));
  proto.set_cache_scope(std::string(kMaxCacheScopeBytes, 'x'));
  FORETOKEN_EXPECT_OK(FromProto(proto));
  proto.set_numerics_fingerprint(std::string(kMaxFingerprintBytes + 1, 'x'));
  EXPECT_THAT(FromProto(proto),
              StatusIs(kInvalid, HasSubstr("numerics_fingerprint")));
}

TEST(ConvertTest, EveryConstraintComesBack) {
  using Kind = Constraint::Kind;
  const std::vector<Constraint> constraints = {
      {Kind::kJsonSchema, R"({"b": 1, "a": 2})", {}},
      {Kind::kJsonObject, "", {}},
      {Kind::kRegex, "[a-z]+", {}},
      {Kind::kGrammar, "root ::= \"a\"", {}},
      {Kind::kChoice, "", {"yes", "", "no"}},
      {Kind::kChoice, "", {}},
      {Kind::kToolCalls, "{}", {}},
      {Kind::kStructuralTag, "{}", {}},
      {Kind::kRegex, "a", {}, {{"<t>", false}, {"</t>", false}, false}},
      {Kind::kChoice, "", {"a"}, {{"[T]", true}, {"[/T]", true}, true}},
      {Kind::kJsonObject, "", {}, {{"", false}, {"[/T]", true}, true}}};
  for (const Constraint& constraint : constraints) {
    v1::Constraint proto;
    ToProto(constraint, &proto);
    const auto got = FromProto(OverTheWire(proto));
    FORETOKEN_ASSERT_OK(got);
    EXPECT_EQ(*got, constraint) << proto.ShortDebugString();
  }
}

TEST(ConvertTest, ConstraintsOfNoMeaningAreRefused) {
  v1::Constraint proto;
  EXPECT_THAT(FromProto(proto),
              StatusIs(kInvalid, HasSubstr("constraint: want json_schema")));
  proto.set_json_object(false);
  EXPECT_THAT(
      FromProto(proto),
      StatusIs(kInvalid, HasSubstr("constraint: json_object is false")));
  proto.set_regex("a");
  proto.mutable_thinking();
  EXPECT_THAT(FromProto(proto),
              StatusIs(kInvalid, HasSubstr("constraint: thinking: open")));
  proto.mutable_thinking()->set_opened(true);
  proto.mutable_thinking()->mutable_close()->set_control(std::string(65, 'a'));
  EXPECT_THAT(FromProto(proto),
              StatusIs(kInvalid, HasSubstr("constraint: thinking: close")));
  proto.clear_thinking();
  for (int i = 0; i <= 10'000; ++i) proto.mutable_choice()->add_texts("a");
  EXPECT_THAT(FromProto(proto),
              StatusIs(kInvalid, HasSubstr("constraint: choice: 10001")));
}

TEST(ConvertTest, ASessionsConstraintComesWithTheVersionOfItsMeaning) {
  SessionRequest request;
  v1::OpenSession proto;
  ToProto(request, &proto);
  EXPECT_FALSE(proto.has_constraint());
  EXPECT_EQ(proto.grammar_version(), 0);
  request.constraint = {Constraint::Kind::kRegex, "a*", {}};
  ToProto(request, &proto);
  EXPECT_EQ(proto.grammar_version(), kGrammarVersion);
  const auto got = FromProto(OverTheWire(proto));
  FORETOKEN_ASSERT_OK(got);
  EXPECT_EQ(got->constraint, request.constraint);
  proto.set_grammar_version(kGrammarVersion + 1);
  EXPECT_THAT(
      FromProto(proto),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr(absl::StrCat("version ", kGrammarVersion + 1)),
                     HasSubstr(absl::StrCat("version ", kGrammarVersion)))));
  // It has none, so that no version could change its meaning.
  proto.clear_constraint();
  FORETOKEN_EXPECT_OK(FromProto(proto));
}

TEST(ConvertTest, AVerifierTellsItsEmbeddings) {
  VerifierInfo info;
  info.embedding_size = 64;
  for (const Pooling pooling :
       {Pooling::kNone, Pooling::kMean, Pooling::kLast}) {
    info.model_pooling = pooling;
    v1::GetVerifierInfoResponse proto;
    ToProto(info, &proto);
    const VerifierInfo got = FromProto(OverTheWire(proto));
    EXPECT_EQ(got.embedding_size, 64);
    EXPECT_EQ(got.model_pooling, pooling);
  }
  v1::GetVerifierInfoResponse newer;
  newer.set_model_pooling(static_cast<v1::Pooling>(77));
  EXPECT_EQ(FromProto(newer).model_pooling, Pooling::kNone);
}

TEST(ConvertTest, ARoundComesBackWithItsProbes) {
  RoundRequest request;
  request.length = int64_t{1} << 40;
  request.tree =
      TokenTree::Create({4, 5, 6}, {-1, 0, 0}, /*probes=*/{1, 2}).value();
  request.candidates = 8;
  request.arm = DraftArm::kNarrow;
  v1::Round proto;
  ToProto(request, &proto);
  const auto got = FromProto(OverTheWire(proto));
  FORETOKEN_ASSERT_OK(got);
  EXPECT_EQ(got->length, request.length);
  EXPECT_THAT(got->tree.tokens(), ElementsAre(4, 5, 6));
  EXPECT_THAT(got->tree.parents(), ElementsAre(-1, 0, 0));
  EXPECT_EQ(got->tree.draft_nodes(), 1);
  EXPECT_FALSE(got->tree.is_probe(0));
  EXPECT_TRUE(got->tree.is_probe(1));
  EXPECT_TRUE(got->tree.is_probe(2));
  EXPECT_EQ(got->candidates, 8);
  EXPECT_EQ(got->arm, DraftArm::kNarrow);

  request = RoundRequest();
  request.length = 3;
  proto.Clear();
  ToProto(request, &proto);
  EXPECT_FALSE(proto.has_tree());
  EXPECT_TRUE(FromProto(OverTheWire(proto))->tree.empty());
}

TEST(ConvertTest, TreesOutOfOrderAreRefused) {
  const auto refused = [](std::initializer_list<int32_t> tokens,
                          std::initializer_list<int32_t> parents,
                          std::initializer_list<int32_t> probes,
                          const char* what) {
    v1::Round proto;
    for (const int32_t token : tokens) proto.mutable_tree()->add_tokens(token);
    for (const int32_t p : parents) proto.mutable_tree()->add_parents(p);
    for (const int32_t p : probes) proto.mutable_tree()->add_probes(p);
    EXPECT_THAT(FromProto(proto), StatusIs(kInvalid, HasSubstr(what)));
  };
  refused({1, 2}, {-1}, {}, "2 tokens but 1 parents");
  refused({1}, {0}, {}, "node 0 has parent 0");
  refused({1}, {-2}, {}, "parent -2");
  refused({-1}, {-1}, {}, "token -1");
  refused({1, 2}, {-1, 0}, {2}, "probes");
  refused({1, 2}, {-1, 0}, {1, 0}, "probes");
  refused({1, 2}, {-1, 0}, {1, 1}, "probes");
  refused({1}, {-1}, {-1}, "probes");
  v1::Round proto;
  for (int i = 0; i <= kMaxTreeNodes; ++i) {
    proto.mutable_tree()->add_tokens(1);
    proto.mutable_tree()->add_parents(-1);
  }
  EXPECT_THAT(FromProto(proto), StatusIs(kInvalid, HasSubstr("tree.tokens")));
  proto.Clear();
  for (const int32_t candidates : {-1, kMaxRowCandidates + 1}) {
    proto.set_top_candidates(candidates);
    EXPECT_THAT(FromProto(proto),
                StatusIs(kInvalid, HasSubstr("top_candidates")));
  }
}

RoundResult FullResult() {
  RoundResult result;
  result.length = 12;
  result.tokens = {{4, -0.5f, {{4, -0.5f}}}, {9, -1.0f, {{9, -1.0f}}}};
  result.path = {0};
  result.row_tokens = {4, 9, -1};
  result.row_candidates = {{{4, -0.5f}, {2, -2.0f}}, {{9, -1.0f}}, {}};
  result.finish = FinishReason::kLength;
  result.arm = DraftArm::kOff;
  result.stats.draft_rows = 1;
  result.stats.dropped_nodes = 1;
  result.stats.accepted = 1;
  result.stats.pass_rows = 40;
  result.stats.pass_sessions = 3;
  result.stats.queue_time = absl::Milliseconds(2);
  result.stats.pass_time = absl::Milliseconds(5);
  return result;
}

TEST(ConvertTest, ARoundsResultComesBack) {
  const RoundResult result = FullResult();
  v1::RoundResult proto;
  ToProto(result, /*with_logprobs=*/true, /*with_rows=*/true, &proto);
  const auto got = FromProto(OverTheWire(proto), 2);
  FORETOKEN_ASSERT_OK(got);
  EXPECT_EQ(got->length, 12);
  ASSERT_EQ(got->tokens.size(), 2u);
  EXPECT_EQ(got->tokens[1].token, 9);
  EXPECT_EQ(got->tokens[1].logprob, -1.0f);
  EXPECT_EQ(got->tokens[1].top_logprobs[0].token, 9);
  EXPECT_THAT(got->path, ElementsAre(0));
  EXPECT_THAT(got->row_tokens, ElementsAre(4, 9, -1));
  ASSERT_EQ(got->row_candidates.size(), 3u);
  EXPECT_EQ(got->row_candidates[0][1].token, 2);
  EXPECT_THAT(got->row_candidates[2], IsEmpty());
  EXPECT_EQ(got->finish, FinishReason::kLength);
  EXPECT_EQ(got->arm, DraftArm::kOff);
  EXPECT_EQ(got->stats.pass_rows, 40);
  EXPECT_EQ(got->stats.queue_time, absl::Milliseconds(2));

  v1::RoundResult bare;
  ToProto(result, false, false, &bare);
  EXPECT_EQ(bare.logprobs_size(), 0);
  EXPECT_EQ(bare.row_tokens_size(), 0);
}

TEST(ConvertTest, ResultsThatDoNotFitTheirTreeAreRefused) {
  v1::RoundResult good;
  ToProto(FullResult(), true, true, &good);
  const auto refused = [&](auto change, const char* what) {
    v1::RoundResult bad = good;
    change(bad);
    EXPECT_THAT(FromProto(bad, 2), StatusIs(kInvalid, HasSubstr(what)));
  };
  refused([](auto& r) { r.set_path(0, 2); }, "path: node 2");
  refused([](auto& r) { r.set_path(0, -1); }, "path: node -1");
  refused([](auto& r) { r.add_row_tokens(1); }, "row_tokens: 4 entries");
  refused([](auto& r) { r.add_logprobs(); }, "logprobs: 3 entries");
  refused([](auto& r) { r.add_row_candidates(); }, "row_candidates");
  refused(
      [](auto& r) {
        for (int i = 0; i < kMaxRowCandidates; ++i) {
          r.mutable_row_candidates(0)->add_candidates();
        }
      },
      "candidates: 10 entries");
  refused(
      [](auto& r) {
        for (int i = 0; i <= kMaxLogprobs; ++i) {
          r.mutable_logprobs(0)->add_top();
        }
      },
      "logprobs.top");
}

TEST(ConvertTest, APrefillComesBack) {
  PrefillResult result;
  result.length = 8;
  result.tokens = {{3, -0.25f, {}}};
  result.reused_tokens = 4;
  result.finish = FinishReason::kStop;
  result.arm = DraftArm::kWide;
  result.embedding = {0.5f, -0.25f};
  v1::Prefilled proto;
  ToProto(result, true, &proto);
  const auto got = FromProto(OverTheWire(proto));
  FORETOKEN_ASSERT_OK(got);
  EXPECT_THAT(got->embedding, ElementsAre(0.5f, -0.25f));
  EXPECT_EQ(got->length, 8);
  EXPECT_EQ(got->tokens[0].token, 3);
  EXPECT_EQ(got->tokens[0].logprob, -0.25f);
  EXPECT_EQ(got->reused_tokens, 4);
  EXPECT_EQ(got->finish, FinishReason::kStop);
  EXPECT_EQ(got->arm, DraftArm::kWide);
}

// From a verifier of another version.
TEST(ConvertTest, AnArmThatIsNotKnownIsNone) {
  v1::Prefilled proto;
  EXPECT_EQ(FromProto(proto)->arm, DraftArm::kNone);
  proto.set_arm(static_cast<v1::DraftArm>(77));
  EXPECT_EQ(FromProto(proto)->arm, DraftArm::kNone);
}

}  // namespace
}  // namespace foretoken::rpc
