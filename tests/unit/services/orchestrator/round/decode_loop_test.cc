#include "services/orchestrator/core/round/decode_loop.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "services/orchestrator/core/drafters/mode_sources.h"
#include "tests/support/fake_backend.h"
#include "tests/support/in_process_verifier.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::orchestrator {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Generated {
  std::string text;
  std::vector<TokenId> token_ids;
  std::vector<DrafterId> drafters;
  std::vector<SampledToken> logprobs;
  std::vector<RoundTree> trees;
  GenerationSummary summary;

  void Add(const GenerationDelta& delta) {
    text += delta.text;
    token_ids.insert(token_ids.end(), delta.token_ids.begin(),
                     delta.token_ids.end());
    drafters.insert(drafters.end(), delta.drafters.begin(),
                    delta.drafters.end());
    logprobs.insert(logprobs.end(), delta.logprobs.begin(),
                    delta.logprobs.end());
    if (delta.round_tree.has_value()) trees.push_back(*delta.round_tree);
  }
};

// The tokens along the accepted nodes, which must be one path from the root.
std::vector<TokenId> AcceptedTokens(const RoundTree& tree) {
  std::vector<TokenId> tokens;
  int32_t last = -1;
  for (int32_t i = 0; i < tree.nodes.size(); ++i) {
    if (!tree.accepted[i]) continue;
    EXPECT_EQ(tree.nodes.parents[i], last) << "accepted beside the path: " << i;
    last = i;
    tokens.push_back(tree.nodes.tokens[i]);
  }
  return tokens;
}

class DecodeLoopTest : public ::testing::Test {
 protected:
  DecodeLoopTest() {
    const std::string path =
        dir_.Write("tokenizer.json", testing::TinyTokenizerJson());
    tokenizer_ = Tokenizer::Load(path).value();
    target_.vocab_size = testing::kTinyVocabulary;
    target_.max_positions = 4096;
    target_.eos_tokens = {1};
  }

  absl::StatusOr<std::unique_ptr<DecodeLoop>> MakeLoop(
      const GenerationRequest& request, const std::string& mode = "off",
      DraftingOptions options = {}) {
    return DecodeLoop::Create(
        request, target_, tokenizer_.get(),
        MakeSources(Mode::Parse(mode).value(), {}).value().sources,
        std::move(options));
  }

  Generated Run(const GenerationRequest& request,
                const std::string& mode = "off") {
    auto loop = MakeLoop(request, mode);
    EXPECT_TRUE(loop.ok()) << loop.status();
    verifier::VerifyEngine engine({}, std::make_unique<testing::FakeBackend>(
                                          testing::FakeBackendOptions()));
    testing::EngineDriver driver(engine);
    testing::InProcessVerifier verifier(driver);
    Generated generated;
    const absl::Status status =
        Generate(**loop, verifier, [&](const GenerationDelta& delta) {
          generated.Add(delta);
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(engine.snapshot().sessions, 0);
    generated.summary = (*loop)->summary();
    return generated;
  }

  static GenerationRequest Request(int64_t max_tokens = 60) {
    GenerationRequest request;
    request.prompt = {0, 5, 9, 12, 5, 9};
    request.max_tokens = max_tokens;
    return request;
  }

  testing::TempDir dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TargetInfo target_;
};

class DecodeLoopModeTest : public DecodeLoopTest,
                           public ::testing::WithParamInterface<const char*> {};

TEST_P(DecodeLoopModeTest, WritesWhatOffWrites) {
  int64_t accepted = 0, recycled = 0;
  for (const float temperature : {0.0f, 0.8f}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      GenerationRequest request = Request(80);
      request.ignore_eos = seed % 2 == 0;
      request.prompt.push_back(static_cast<TokenId>(seed));
      request.sampling.temperature = temperature;
      request.sampling.seed = seed;
      if (seed % 3 == 0) {
        request.sampling.top_p = 0.9f;
        request.sampling.frequency_penalty = 0.1f;
      }
      const Generated off = Run(request);
      const Generated lookup = Run(request, GetParam());
      ASSERT_EQ(lookup.token_ids, off.token_ids);
      EXPECT_EQ(lookup.text, off.text);
      EXPECT_EQ(lookup.summary.finish, off.summary.finish);
      EXPECT_EQ(lookup.summary.by_drafter[0].degraded, 0);
      const GenerationSummary& summary = lookup.summary;
      EXPECT_EQ(1 + summary.rounds + summary.accepted,
                summary.completion_tokens);
      ASSERT_THAT(summary.by_drafter, SizeIs(1));
      EXPECT_EQ(summary.by_drafter[0].drafted, summary.drafted);
      EXPECT_EQ(summary.by_drafter[0].accepted, summary.accepted);
      const auto count = [&](DrafterId id) {
        return std::count(lookup.drafters.begin(), lookup.drafters.end(), id);
      };
      const DrafterId id = summary.by_drafter[0].id;
      const int64_t of_parts =
          count(DrafterId::kFusedRequest) + count(DrafterId::kFusedRecycled);
      EXPECT_EQ(id == DrafterId::kFused ? of_parts : count(id),
                summary.accepted);
      accepted += summary.accepted;
      recycled += count(DrafterId::kFusedRecycled);
    }
  }
  EXPECT_GT(accepted, 100);
  // The verifier's candidates have come back as drafts.
  if (GetParam() == std::string("auto")) {
    EXPECT_GT(recycled, 100);
  }
}

TEST_P(DecodeLoopModeTest, ReturnsTheTreesOfItsRounds) {
  GenerationRequest request = Request(80);
  request.ignore_eos = true;
  EXPECT_THAT(Run(request, GetParam()).trees, IsEmpty());
  request.want_round_trees = true;
  const Generated got = Run(request, GetParam());
  ASSERT_EQ(static_cast<int64_t>(got.trees.size()), got.summary.rounds);
  // The token of prefill belongs to no round.
  std::vector<TokenId> output = {got.token_ids[0]};
  std::vector<DrafterId> drafters = {DrafterId::kTarget};
  int64_t drafted = 0, accepted = 0, rejected = 0;
  for (const RoundTree& tree : got.trees) {
    ASSERT_FALSE(tree.committed.empty());
    const absl::Span<const TokenId> path =
        absl::MakeConstSpan(tree.committed).first(tree.committed.size() - 1);
    EXPECT_EQ(AcceptedTokens(tree), path);
    const DraftTree& nodes = tree.nodes;
    for (int32_t i = 0; i < nodes.size(); ++i) {
      const int32_t parent = nodes.parents[i];
      ASSERT_GE(parent, -1);
      ASSERT_LT(parent, i);
      EXPECT_NE(nodes.parts[i], DrafterId::kTarget);
      EXPECT_GE(nodes.probs[i], 0);
      // A path is at most as likely as its beginning.
      EXPECT_LE(nodes.probs[i], parent < 0 ? 1 : nodes.probs[parent]);
      if (tree.accepted[i]) drafters.push_back(nodes.parts[i]);
      ++(tree.accepted[i] ? accepted : rejected);
    }
    output.insert(output.end(), tree.committed.begin(), tree.committed.end());
    drafters.push_back(DrafterId::kTarget);
    drafted += nodes.size();
  }
  EXPECT_EQ(output, got.token_ids);
  EXPECT_EQ(drafters, got.drafters);
  EXPECT_EQ(drafted, got.summary.drafted);
  EXPECT_EQ(accepted, got.summary.accepted);
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, DecodeLoopModeTest,
                         ::testing::Values("prompt_lookup", "lookahead",
                                           "lookahead:window=3,ngram=3,pool=2",
                                           "ngram_trie:learn=1", "auto"));

TEST_F(DecodeLoopTest, PlainDecodingHasAcceptLengthOne) {
  GenerationRequest request = Request(30);
  request.ignore_eos = true;
  const Generated off = Run(request);
  EXPECT_EQ(off.summary.rounds, 29);
  EXPECT_EQ(off.summary.accept_length(), 1.0);
  EXPECT_EQ(off.summary.drafted, 0);
  EXPECT_EQ(off.summary.finish, FinishReason::kLength);
  EXPECT_EQ(off.summary.prompt_tokens, 6);
  EXPECT_EQ(off.summary.completion_tokens, 30);
  EXPECT_EQ(off.text, tokenizer_->Decode(off.token_ids).value());
}

TEST_F(DecodeLoopTest, ARoundWithoutDraftsHasATreeWithoutNodes) {
  GenerationRequest request = Request(10);
  request.ignore_eos = true;
  request.want_round_trees = true;
  const Generated off = Run(request);
  ASSERT_THAT(off.trees, SizeIs(9));
  for (size_t i = 0; i < off.trees.size(); ++i) {
    EXPECT_THAT(off.trees[i].nodes.tokens, IsEmpty());
    EXPECT_THAT(off.trees[i].committed, ElementsAre(off.token_ids[i + 1]));
  }
}

// A stop string hides tokens that its round committed; they stay in the tree,
// and what follows them does not.
TEST_F(DecodeLoopTest, TheTreeEndsWithTheTokenThatEndsTheOutput) {
  GenerationRequest request = Request(60);
  request.ignore_eos = true;
  request.want_round_trees = true;
  const Generated all = Run(request, "prompt_lookup");
  const std::string end = tokenizer_->Decode({all.token_ids[30]}).value();
  request.stop_strings = {end};
  const Generated cut = Run(request, "prompt_lookup");
  EXPECT_EQ(cut.summary.finish, FinishReason::kStop);
  std::vector<TokenId> output = {all.token_ids[0]};
  int64_t accepted = 0;
  for (const RoundTree& tree : cut.trees) {
    output.insert(output.end(), tree.committed.begin(), tree.committed.end());
    EXPECT_THAT(AcceptedTokens(tree), SizeIs(tree.committed.size() - 1));
    accepted += static_cast<int64_t>(tree.committed.size()) - 1;
  }
  EXPECT_EQ(accepted, cut.summary.accepted);
  ASSERT_GT(output.size(), cut.token_ids.size());
  EXPECT_EQ(absl::MakeConstSpan(output).first(cut.token_ids.size()),
            absl::MakeConstSpan(cut.token_ids));
  EXPECT_EQ(output, std::vector<TokenId>(
                        all.token_ids.begin(),
                        all.token_ids.begin() +
                            static_cast<std::ptrdiff_t>(output.size())));
}

TEST_F(DecodeLoopTest, OneTokenNeedsNoRound) {
  const Generated one = Run(Request(1), "prompt_lookup");
  EXPECT_THAT(one.token_ids, SizeIs(1));
  EXPECT_EQ(one.summary.rounds, 0);
  EXPECT_EQ(one.summary.accept_length(), 1.0);
}

TEST_F(DecodeLoopTest, AnEndTokenIsAmongTheIdsAndNotInTheText) {
  GenerationRequest request = Request(40);
  request.ignore_eos = true;
  const Generated all = Run(request);
  // An ordinary token as stop token: its text must not show.
  request.stop_token_ids = {all.token_ids[5]};
  const auto first =
      std::find(all.token_ids.begin(), all.token_ids.end(), all.token_ids[5]);
  const std::vector<TokenId> want(all.token_ids.begin(), first + 1);
  for (const char* mode : {"off", "prompt_lookup"}) {
    const Generated stopped = Run(request, mode);
    EXPECT_EQ(stopped.token_ids, want);
    EXPECT_EQ(stopped.summary.finish, FinishReason::kStop);
    EXPECT_EQ(stopped.summary.stop_string, "");
    EXPECT_EQ(
        stopped.text,
        tokenizer_->Decode(absl::MakeConstSpan(want).first(want.size() - 1))
            .value());
  }
}

TEST_F(DecodeLoopTest, MinTokensBansEndTokensAtFirst) {
  GenerationRequest request = Request(40);
  request.sampling.logit_bias = {{1, 100.0f}};  // the end token, at once
  EXPECT_THAT(Run(request).token_ids, ElementsAre(1));
  request.sampling.min_tokens = 5;
  for (const char* mode : {"off", "prompt_lookup"}) {
    const Generated generated = Run(request, mode);
    EXPECT_THAT(generated.token_ids, SizeIs(6));
    EXPECT_EQ(generated.token_ids.back(), 1);
  }
}

// Drafts nothing and keeps what it is told at the start.
class Listener final : public DraftSource {
 public:
  explicit Listener(DraftOpen& heard) : heard_(heard) {}

  DrafterId id() const override { return DrafterId::kDraftModel; }
  void Start(const DraftOpen& open, absl::Span<const TokenId>) override {
    heard_ = open;
  }
  void Ask(const DraftRound&, absl::Span<const TokenId>) override {}
  DraftOutcome Collect(absl::Time, SourceDraft&) override {
    return DraftOutcome::kNotAsked;
  }

 private:
  DraftOpen& heard_;
};

TEST_F(DecodeLoopTest, DraftersHearWhatEndsTheOutput) {
  const auto heard = [&](const GenerationRequest& request) {
    DraftOpen open;
    DraftSources sources;
    sources.push_back(std::make_unique<Listener>(open));
    EXPECT_THAT(DecodeLoop::Create(request, target_, tokenizer_.get(),
                                   std::move(sources), {})
                    .status(),
                testing::IsOk());
    return open.sampling;
  };
  GenerationRequest request = Request();
  request.stop_token_ids = {7};
  request.sampling.min_tokens = 3;
  EXPECT_THAT(heard(request).end_tokens, ElementsAre(1, 7));
  EXPECT_EQ(heard(request).min_tokens, 3);
  request.ignore_eos = true;
  EXPECT_THAT(heard(request).end_tokens, ElementsAre(7));
}

// Reads the prompt where it was at the start.
class Borrower final : public DraftSource {
 public:
  explicit Borrower(int& asks) : asks_(asks) {}

  DrafterId id() const override { return DrafterId::kDraftModel; }
  void Start(const DraftOpen& open, absl::Span<const TokenId> text) override {
    EXPECT_TRUE(open.tokens.empty());
    prompt_ = text;
  }
  void Ask(const DraftRound&, absl::Span<const TokenId> text) override {
    if (asks_++ > 0) return;
    EXPECT_EQ(text.data(), prompt_.data());
    EXPECT_EQ(text.size(), prompt_.size() + 1);
  }
  DraftOutcome Collect(absl::Time, SourceDraft&) override {
    return DraftOutcome::kNotAsked;
  }

 private:
  int& asks_;
  absl::Span<const TokenId> prompt_;
};

TEST_F(DecodeLoopTest, ThePromptStaysInPlaceUntilTheFirstAsk) {
  int asks = 0;
  DraftSources sources;
  sources.push_back(std::make_unique<Borrower>(asks));
  auto loop = DecodeLoop::Create(Request(), target_, tokenizer_.get(),
                                 std::move(sources), {});
  FORETOKEN_ASSERT_OK(loop);
  PrefillResult prefill;
  prefill.tokens.resize(1);
  prefill.tokens[0].token = 5;
  prefill.length = static_cast<int64_t>(Request().prompt.size()) + 1;
  GenerationDelta delta;
  FORETOKEN_ASSERT_OK((*loop)->OnPrefill(prefill, delta));
  EXPECT_EQ(asks, 1);
}

TEST_F(DecodeLoopTest, AStopStringEndsTextAndIdsBeforeIt) {
  GenerationRequest request = Request(60);
  request.ignore_eos = true;
  // No broken characters, whose replacements have other lengths; no loops.
  request.sampling.logit_bias = {{29, -100.0f}, {30, -100.0f}};
  request.sampling.temperature = 2.0f;
  const Generated all = Run(request);
  ASSERT_GT(all.text.size(), 30u);
  for (const size_t at : {3u, 10u, 20u}) {
    const std::string stop = all.text.substr(at, 4);
    const size_t match = all.text.find(stop);
    request.stop_strings = {stop};
    int64_t tokens = 0;  // whose bytes end before the match
    for (std::string text; tokens < 60; ++tokens) {
      text += std::string(tokenizer_->TokenBytes(all.token_ids[tokens]));
      if (text.size() > match) break;
    }
    for (const char* mode : {"off", "prompt_lookup"}) {
      const Generated stopped = Run(request, mode);
      EXPECT_EQ(stopped.text, all.text.substr(0, match)) << stop;
      EXPECT_EQ(stopped.token_ids,
                std::vector<TokenId>(all.token_ids.begin(),
                                     all.token_ids.begin() + tokens));
      EXPECT_EQ(stopped.summary.finish, FinishReason::kStop);
      EXPECT_EQ(stopped.summary.stop_string, stop);
      EXPECT_EQ(stopped.summary.completion_tokens, tokens);
      if (std::string(mode) == "off") {
        EXPECT_EQ(stopped.summary.accept_length(), 1.0);
      }
    }
  }
}

TEST_F(DecodeLoopTest, LogprobsComeWithTheirTokens) {
  GenerationRequest request = Request(10);
  request.sampling.logprobs = 3;
  const Generated generated = Run(request, "prompt_lookup");
  ASSERT_EQ(generated.logprobs.size(), generated.token_ids.size());
  for (size_t i = 0; i < generated.token_ids.size(); ++i) {
    EXPECT_EQ(generated.logprobs[i].token, generated.token_ids[i]);
    EXPECT_THAT(generated.logprobs[i].top_logprobs, SizeIs(3));
    EXPECT_EQ(generated.logprobs[i].top_logprobs[0].token,
              generated.token_ids[i]);  // greedy
  }
}

TEST_F(DecodeLoopTest, ALostSessionIsReplayedElsewhereToTheSameText) {
  GenerationRequest request = Request(50);
  request.sampling.temperature = 0.8f;
  request.sampling.seed = 4;
  request.sampling.presence_penalty = 0.5f;
  request.ignore_eos = true;
  const Generated want = Run(request);
  auto loop = MakeLoop(request, "prompt_lookup").value();
  Generated got;
  const auto drive = [&](int rounds) {
    verifier::VerifyEngine engine({}, std::make_unique<testing::FakeBackend>(
                                          testing::FakeBackendOptions()));
    testing::EngineDriver driver(engine);
    testing::InProcessVerifier verifier(driver);
    GenerationDelta delta;
    FORETOKEN_ASSERT_OK(loop->OnPrefill(
        verifier.Open(loop->OpenRequest(), loop->text()).value(), delta));
    for (int i = 0; i < rounds && !loop->done(); ++i) {
      FORETOKEN_ASSERT_OK(loop->OnRound(
          verifier.Round(loop->NextRound(), loop->text()).value(), delta));
    }
    got.Add(delta);
  };
  drive(7);
  drive(5);
  drive(1000);
  EXPECT_TRUE(loop->done());
  EXPECT_EQ(got.token_ids, want.token_ids);
  EXPECT_EQ(got.text, want.text);
}

TEST_F(DecodeLoopTest, TimesAreTakenFromTheClock) {
  absl::Time now = absl::FromUnixSeconds(100);
  DraftingOptions options;
  options.clock = [&now] { return now; };
  auto loop = MakeLoop(Request(2), "off", options).value();
  now += absl::Milliseconds(70);
  GenerationDelta delta;
  PrefillResult prefill;
  prefill.length = 7;
  prefill.tokens.emplace_back().token = 4;
  FORETOKEN_ASSERT_OK(loop->OnPrefill(prefill, delta));
  loop->NextRound();
  now += absl::Milliseconds(30);
  RoundResult round;
  round.length = 8;
  round.tokens.emplace_back().token = 6;
  round.finish = FinishReason::kLength;
  FORETOKEN_ASSERT_OK(loop->OnRound(round, delta));
  EXPECT_EQ(loop->summary().time_to_first_token, absl::Milliseconds(70));
  EXPECT_EQ(loop->summary().decode_time, absl::Milliseconds(30));
  EXPECT_EQ(loop->summary().decoded_tokens, 1);
}

TEST_F(DecodeLoopTest, AnswersThatDoNotFitAreInternalErrors) {
  auto loop = MakeLoop(Request(5)).value();
  GenerationDelta delta;
  PrefillResult prefill;
  prefill.length = 6;  // no token
  EXPECT_THAT(loop->OnPrefill(prefill, delta),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("prefill")));
  prefill.length = 7;
  prefill.tokens.emplace_back().token = 4;
  FORETOKEN_ASSERT_OK(loop->OnPrefill(prefill, delta));
  loop->NextRound();
  RoundResult round;
  round.length = 9;
  round.tokens.resize(2);
  round.path = {0};  // of an empty tree
  EXPECT_THAT(loop->OnRound(round, delta),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("node 0 of 0")));
}

TEST_F(DecodeLoopTest, BadRequestsAreRefusedByField) {
  const auto refused = [&](const GenerationRequest& request,
                           const std::string& why) {
    EXPECT_THAT(MakeLoop(request),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  GenerationRequest request = Request();
  request.prompt.clear();
  refused(request, "prompt: it is empty");
  request = Request();
  request.prompt[2] = 50;
  refused(request, "prompt: token 2 is 50, the vocabulary is 0..49");
  refused(Request(0), "max_tokens is 0");
  refused(Request(std::numeric_limits<int64_t>::max()),
          "context length is 4096");
  refused(Request(4091), "max_tokens is 4091: with the prompt's 6 tokens");
  request = Request();
  request.prompt.assign(5000, 3);
  refused(request, "5000 tokens");
  request = Request();
  request.stop_token_ids = {-1};
  refused(request, "stop_token_ids: token 0 is -1");
  request = Request();
  request.stop_strings = {""};
  refused(request, "stop");
  request = Request();
  request.sampling.temperature = -1.0f;
  refused(request, "temperature is -1");
  request = Request();
  request.stop_strings = {"x"};
  EXPECT_THAT(DecodeLoop::Create(request, target_, nullptr, {}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("need a tokenizer")));
}

TEST_F(DecodeLoopTest, OnlyARequestThatStaysAsItIsMayChangeItsModel) {
  target_.numerics_fingerprint = "old";
  GenerationRequest request;
  request.prompt = {5, 6};
  request.max_tokens = 4;
  const auto loop = MakeLoop(request);
  ASSERT_TRUE(loop.ok()) << loop.status();
  EXPECT_FALSE((*loop)->Retarget(target_));  // the same
  TargetInfo next = target_;
  next.numerics_fingerprint = "new";
  for (const auto& change : std::vector<std::function<void(TargetInfo&)>>{
           [](TargetInfo& info) { ++info.vocab_size; },
           [](TargetInfo& info) { --info.max_positions; },
           [](TargetInfo& info) { --info.max_rows_per_session; },
           [](TargetInfo& info) { info.eos_tokens = {2}; },
           [](TargetInfo& info) { info.tokenizer_fingerprint = "x"; }}) {
    TargetInfo other = next;
    change(other);
    EXPECT_FALSE((*loop)->Retarget(other));
    EXPECT_EQ((*loop)->OpenRequest().numerics_fingerprint, "old");
  }
  EXPECT_TRUE((*loop)->Retarget(next));
  EXPECT_EQ((*loop)->OpenRequest().numerics_fingerprint, "new");

  GenerationDelta delta;
  PrefillResult prefill;
  prefill.length = 3;
  prefill.tokens.resize(1);
  prefill.tokens[0].token = 7;
  FORETOKEN_ASSERT_OK((*loop)->OnPrefill(prefill, delta));
  EXPECT_EQ(delta.start->numerics_fingerprint, "new");
  EXPECT_FALSE((*loop)->Retarget(target_));  // it has output

  request.numerics_fingerprint = "old";
  const auto pinned = MakeLoop(request);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_FALSE((*pinned)->Retarget(next));
}

}  // namespace
}  // namespace foretoken::orchestrator
