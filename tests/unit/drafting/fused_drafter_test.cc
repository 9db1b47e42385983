#include "common/drafting/fused_drafter.h"

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "common/drafting/verified_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/drafting/prior_testing.h"

namespace foretoken {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int32_t kVocab = 60;

std::shared_ptr<const StaticPrior> TestPrior() {
  const auto prior = testing::ParsePrior(
      *testing::BuildTestPrior(testing::ChainCorpus(1, 200, kVocab), kVocab));
  return prior.ok() ? *prior : nullptr;
}

Tokens RandomText(uint32_t seed, int length) {
  std::mt19937 random(seed);
  Tokens text;
  for (int i = 0; i < length; ++i) {
    text.push_back(static_cast<TokenId>(random() % kVocab));
  }
  return text;
}

struct Service {
  int rounds = 0;
  int tokens = 0;
  std::vector<DraftTree> trees;
  double accept_length() const { return static_cast<double>(tokens) / rounds; }
};

// One request whose target writes `output`.
Service Serve(Drafter& drafter, const Tokens& prompt, const Tokens& output,
              int max_nodes = 64) {
  Service run;
  drafter.StartRequest(prompt);
  drafter.Commit({output.data(), 1});
  for (size_t at = 1; at < output.size();) {
    DraftTree tree;
    drafter.Draft(max_nodes, tree);
    int32_t node = kRootParent;
    size_t accepted = 0;
    for (int i = 0; i < tree.size() && at + accepted < output.size(); ++i) {
      if (tree.parents[i] == node && tree.tokens[i] == output[at + accepted]) {
        node = i;
        ++accepted;
      }
    }
    const size_t taken = std::min(accepted + 1, output.size() - at);
    drafter.Commit({output.data() + at, taken});
    at += taken;
    run.tokens += static_cast<int>(taken);
    ++run.rounds;
    run.trees.push_back(std::move(tree));
  }
  return run;
}

TEST(FusedDrafterTest, DraftsNothingWithoutEvidence) {
  FusedOptions options;
  const auto drafter = MakeFusedDrafter(options);
  DraftTree tree;
  drafter->StartRequest({});
  drafter->Draft(64, tree);
  EXPECT_EQ(tree.size(), 0);
  drafter->StartRequest(Tokens{1, 2, 3});
  drafter->Commit(Tokens{4});
  drafter->Draft(64, tree);
  EXPECT_EQ(tree.size(), 0);
}

TEST(FusedDrafterTest, EqualCallsGiveEqualTrees) {
  FusedOptions options;
  options.prior = TestPrior();
  ASSERT_NE(options.prior, nullptr);
  const auto a = MakeFusedDrafter(options);
  const auto b = MakeFusedDrafter(options);
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const Tokens output = RandomText(seed % 2, 120);
    const Service ra = Serve(*a, {1, 2}, output);
    const Service rb = Serve(*b, {1, 2}, output);
    ASSERT_EQ(ra.trees.size(), rb.trees.size());
    for (size_t i = 0; i < ra.trees.size(); ++i) {
      ASSERT_EQ(ra.trees[i].tokens, rb.trees[i].tokens);
      ASSERT_EQ(ra.trees[i].parents, rb.trees[i].parents);
      ASSERT_EQ(ra.trees[i].probs, rb.trees[i].probs);
    }
  }
}

TEST(FusedDrafterTest, FollowsAnExactRepeatFar) {
  const auto drafter = MakeFusedDrafter(FusedOptions{});
  const Tokens output = RandomText(9, 600);
  EXPECT_LT(Serve(*drafter, {1}, output).accept_length(), 1.5);
  EXPECT_GT(Serve(*drafter, {1}, output).accept_length(), 20.0);
}

TEST(FusedDrafterTest, CopiesOutOfThePrompt) {
  const auto drafter = MakeFusedDrafter(FusedOptions{});
  const Tokens text = RandomText(9, 300);
  EXPECT_GT(Serve(*drafter, text, text).accept_length(), 10.0);
}

TEST(FusedDrafterTest, WithoutKeptHistoryARequestLeavesNothing) {
  FusedOptions options;
  options.keep_history = false;
  options.prior = TestPrior();
  const auto drafter = MakeFusedDrafter(options);
  const Tokens output = RandomText(9, 200);
  const Service first = Serve(*drafter, {1}, output);
  const Service second = Serve(*drafter, {1}, output);
  EXPECT_EQ(drafter->SharedTokens(), 0);
  ASSERT_EQ(first.trees.size(), second.trees.size());
  for (size_t i = 0; i < first.trees.size(); ++i) {
    ASSERT_EQ(first.trees[i].tokens, second.trees[i].tokens);
  }
}

TEST(FusedDrafterTest, ARequestThatKeepsNothingLeavesTheSharedTrust) {
  FusedOptions options;
  options.memory = std::make_shared<FusedMemory>(1 << 12);
  const auto keeps = MakeFusedDrafter(options);
  Serve(*keeps, {1}, RandomText(9, 300));
  Serve(*keeps, {1}, RandomText(9, 300));
  const SharedTrust learned = options.memory->trust();
  options.keep_history = false;
  const auto other = MakeFusedDrafter(options);
  Serve(*other, {1}, RandomText(9, 300));
  const SharedTrust start;
  bool moved = false;
  for (size_t kind = 0; kind < SharedTrust::kKinds; ++kind) {
    ASSERT_EQ(options.memory->trust()[kind], learned[kind]) << kind;
    moved |= learned[kind] != start[kind];
  }
  EXPECT_TRUE(moved);
}

TEST(FusedMemoryTest, StepsOfOverlappingRequestsAddUp) {
  FusedMemory memory(64);
  const SharedTrust start = memory.trust();
  SharedTrust doubled = start;
  SharedTrust halved = start;
  doubled[0] *= 2.0f;
  halved[0] *= 0.5f;
  halved[1] *= 0.5f;
  memory.Learn(start, doubled);
  EXPECT_EQ(memory.trust()[0], doubled[0]);
  memory.Learn(start, halved);
  EXPECT_FLOAT_EQ(memory.trust()[0], start[0]);
  EXPECT_EQ(memory.trust()[1], halved[1]);
}

TEST(FusedMemoryTest, DraftersOfManyThreadsShareIt) {
  FusedOptions options;
  options.memory = std::make_shared<FusedMemory>(1 << 12);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&options, t] {
      const auto drafter = MakeFusedDrafter(options);
      for (uint32_t i = 0; i < 4; ++i) {
        Serve(*drafter, RandomText(t, 300), RandomText(20 + i, 100));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(options.memory->Tokens(), 4 * 4 * 101);  // whole outputs, borders
  const auto drafter = MakeFusedDrafter(options);
  EXPECT_GT(Serve(*drafter, {1}, RandomText(20, 100)).accept_length(), 5.0);
}

TEST(FusedDrafterTest, PromptsNeverEnterTheHistory) {
  const auto drafter = MakeFusedDrafter(FusedOptions{});
  const Tokens secret = RandomText(9, 100);
  Serve(*drafter, secret, {1, 2, 3});
  drafter->StartRequest(Tokens(secret.begin(), secret.begin() + 20));
  DraftTree tree;
  drafter->Draft(64, tree);
  EXPECT_EQ(std::count(tree.tokens.begin(), tree.tokens.end(), secret[20]), 0);
  EXPECT_EQ(drafter->SharedTokens(), 4);  // three tokens and their border
}

TEST(FusedDrafterTest, AddedHistoryServesAndForgetSharedDropsIt) {
  const auto drafter = MakeFusedDrafter(FusedOptions{});
  const Tokens output = RandomText(9, 300);
  drafter->AddHistory(output);
  EXPECT_GT(Serve(*drafter, {1}, output).accept_length(), 10.0);
  drafter->ForgetShared();
  EXPECT_EQ(drafter->SharedTokens(), 0);
  EXPECT_LT(Serve(*drafter, {1}, output).accept_length(), 1.5);
}

TEST(FusedDrafterTest, DraftersOfOneScopeShareTheirMemory) {
  FusedOptions options;
  options.memory = std::make_shared<FusedMemory>(1 << 12);
  const auto a = MakeFusedDrafter(options);
  const auto b = MakeFusedDrafter(options);
  const Tokens output = RandomText(9, 300);
  Serve(*a, {1}, output);
  a->StartRequest({});  // ends the request before
  EXPECT_GT(Serve(*b, {1}, output).accept_length(), 10.0);
}

// Interleaved requests evict what others' cursors point to.
TEST(FusedDrafterTest, SurvivesEvictionByItsNeighbours) {
  FusedOptions options;
  options.memory = std::make_shared<FusedMemory>(64);
  options.prior = TestPrior();
  const auto a = MakeFusedDrafter(options);
  const auto b = MakeFusedDrafter(options);
  const Tokens text = RandomText(9, 400);
  DraftTree tree;
  a->StartRequest(Tokens{1});
  for (size_t i = 0; i + 8 <= text.size(); i += 8) {
    a->Commit({text.data() + i, 8});
    b->AddHistory({text.data() + i / 2, 24});
    a->Draft(64, tree);
    for (int n = 0; n < tree.size(); ++n) ASSERT_LT(tree.parents[n], n);
  }
  EXPECT_LE(a->SharedTokens(), 64);
}

TEST(FusedDrafterTest, MemoryIsBounded) {
  FusedOptions options;
  options.request_tokens = 2048;
  options.history_tokens = 4096;
  const auto drafter = MakeFusedDrafter(options);
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Tokens text = RandomText(seed, 3000);
    drafter->StartRequest(text);
    drafter->Commit(text);
  }
  EXPECT_LE(drafter->SharedTokens(), 4096);
  EXPECT_LT(drafter->SharedBytes(), size_t{4096} * 300);
  // What one request writes beyond the history window is not held.
  drafter->StartRequest({});
  const Tokens text = RandomText(1, 50'000);
  for (size_t i = 0; i + 50 <= text.size(); i += 50) {
    drafter->Commit({text.data() + i, 50});
  }
  const size_t output = 2 * 4096 * sizeof(TokenId) * 2;
  EXPECT_LT(drafter->RequestBytes(), size_t{2048} * 300 + output);
  drafter->EndRequest();
  EXPECT_LT(drafter->RequestBytes(), size_t{2048} * 300);
}

TEST(FusedDrafterTest, OneSetOfSourcesAtATime) {
  for (bool request : {false, true}) {
    for (bool history : {false, true}) {
      for (bool with_prior : {false, true}) {
        FusedOptions options;
        options.use_request = request;
        options.use_history = history;
        if (with_prior) options.prior = TestPrior();
        const auto drafter = MakeFusedDrafter(options);
        const Tokens output = RandomText(3, 200);
        Serve(*drafter, output, output);
        const Service run = Serve(*drafter, output, output);
        EXPECT_EQ(run.accept_length() > 5.0, request || history);
        EXPECT_EQ(run.trees[0].size() > 0, request || history || with_prior);
      }
    }
  }
}

std::shared_ptr<const StaticPrior> PriorOf(const Tokens& text) {
  return *testing::ParsePrior(*testing::BuildTestPrior(text, kVocab));
}

TEST(FusedDrafterTest, AScopesPriorLiesOverTheSharedOne) {
  const auto drafted = [](const FusedOptions& options) {
    const auto drafter = MakeFusedDrafter(options);
    drafter->StartRequest(Tokens{7, 1, 2});
    DraftTree tree;
    drafter->Draft(64, tree);
    return tree.tokens;
  };
  FusedOptions options;
  options.prior = PriorOf({1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 4});
  EXPECT_EQ(drafted(options)[0], 3);
  options.scope_prior = PriorOf({1, 2, 5, 6, 1, 2, 5, 6, 1, 2, 5, 6});
  const Tokens both = drafted(options);
  EXPECT_EQ(both[0], 5) << "the scope's text comes first";
  EXPECT_THAT(both, ::testing::IsSupersetOf({5, 6, 3})) << "the other remains";
  options.prior = nullptr;
  EXPECT_THAT(drafted(options), ::testing::Contains(5));
}

TEST(FusedDrafterTest, LearnsTheTrustInAScopesPriorApart) {
  const Tokens text = RandomText(5, 300);
  FusedOptions options;
  options.memory = std::make_shared<FusedMemory>(1 << 12);
  options.use_request = options.use_recycled = false;
  options.scope_prior = PriorOf(text);
  const auto drafter = MakeFusedDrafter(options);
  const SharedTrust before = options.memory->trust();
  Serve(*drafter, {1}, text);
  drafter->EndRequest();
  const SharedTrust after = options.memory->trust();
  int scope = 0;
  for (int length = 1; length <= SharedTrust::kPriorLengths; ++length) {
    for (int code = 0; code < 256; code += 8) {
      const uint8_t of = static_cast<uint8_t>(code);
      const auto shared = TrustKind::Prior(PriorLayer::kShared, length, of);
      EXPECT_EQ(after[shared.shared], before[shared.shared]);
      const auto own = TrustKind::Prior(PriorLayer::kScope, length, of);
      scope += after[own.shared] != before[own.shared];
    }
  }
  EXPECT_GT(scope, 0);
}

// What the target said to a tree below the last token: `after[row]` is the one
// candidate of the row.
VerifiedTree Verified(Tokens tokens, std::vector<int32_t> parents,
                      std::vector<int32_t> path, const Tokens& after) {
  VerifiedTree verified;
  verified.tree =
      TokenTree::Create(std::move(tokens), std::move(parents)).value();
  verified.path = std::move(path);
  std::vector<std::vector<TokenLogprob>> candidates;
  for (const TokenId token : after) candidates.push_back({{token, 0.0f}});
  verified.candidates = CandidateRows::Of(candidates);
  return verified;
}

Tokens Drafted(Drafter& drafter) {
  DraftTree tree;
  drafter.Draft(64, tree);
  return tree.tokens;
}

TEST(FusedDrafterTest, DraftsWhatTheTargetFoundLikelyAfterAnyVerifiedRow) {
  FusedOptions options;
  options.use_history = false;
  const auto drafter = MakeFusedDrafter(options);
  ASSERT_TRUE(drafter->reads_candidates());
  drafter->StartRequest(Tokens{1, 2});
  drafter->Commit(Tokens{3});
  // The target took 4 and then wrote 9; 5 and 6 were rejected.
  drafter->Commit(Tokens{4, 9});
  drafter->Observe(Verified({4, 5, 6}, {-1, -1, 1}, {0}, {4, 9, 41, 42}));
  EXPECT_THAT(Drafted(*drafter), ::testing::IsEmpty());
  drafter->Commit(Tokens{5});
  EXPECT_EQ(Drafted(*drafter)[0], 41);  // after 5 alone
  drafter->Commit(Tokens{6});
  EXPECT_EQ(Drafted(*drafter)[0], 42);  // after 5 and 6
  drafter->Commit(Tokens{3});
  EXPECT_EQ(Drafted(*drafter)[0], 4);
  drafter->StartRequest(Tokens{5, 6});
  EXPECT_THAT(Drafted(*drafter), ::testing::IsEmpty());
}

TEST(FusedDrafterTest, ATreeThatDoesNotFitTheLastCommitIsIgnored) {
  FusedOptions options;
  options.use_history = false;
  const auto drafter = MakeFusedDrafter(options);
  drafter->StartRequest(Tokens{1, 2});
  VerifiedTree verified = Verified({5}, {-1}, {}, {9, 41});
  drafter->Observe(verified);  // nothing was committed
  drafter->Commit(Tokens{3, 9});
  drafter->Observe(verified);  // gave one token, not two
  drafter->Commit(Tokens{8});
  verified.candidates.tokens.pop_back();
  drafter->Observe(verified);
  drafter->Commit(Tokens{5});
  EXPECT_THAT(Drafted(*drafter), ::testing::IsEmpty());
}

TEST(FusedDrafterTest, ASightDoesNotEarnTrustFromTheTokensItGave) {
  FusedOptions options;
  options.memory = std::make_shared<FusedMemory>(options.history_tokens);
  const SharedTrust before = options.memory->trust();
  const auto drafter = MakeFusedDrafter(options);
  drafter->StartRequest(Tokens{1, 2});
  drafter->Commit(Tokens{3});
  drafter->Commit(Tokens{9});
  drafter->Observe(Verified({}, {}, {}, {9}));
  drafter->EndRequest();
  for (const Source source : {Source::kRequest, Source::kHistory}) {
    for (const int length : {1, 2}) {
      const size_t kind = TrustKind::Recycled(source, length, 1.0f).shared;
      EXPECT_EQ(options.memory->trust()[kind], before[kind]);
    }
  }
}

TEST(FusedDrafterTest, AScopeGetsCandidatesAfterOutputAloneAndAtTheEnd) {
  FusedOptions options;
  options.memory = std::make_shared<FusedMemory>(options.history_tokens);
  const auto drafter = MakeFusedDrafter(options);
  const auto reader = MakeFusedDrafter(options);
  drafter->StartRequest(Tokens{1, 2});
  drafter->Commit(Tokens{3});
  drafter->Commit(Tokens{4, 9});
  drafter->Observe(Verified({4, 5}, {-1, -1}, {0}, {44, 49, 45}));
  const auto after = [&](Tokens prompt) {
    reader->StartRequest(prompt);
    return Drafted(*reader);
  };
  EXPECT_THAT(after({3, 4}), ::testing::IsEmpty());
  drafter->EndRequest();
  EXPECT_THAT(after({3, 4}), ::testing::Contains(49));
  EXPECT_THAT(after({50, 3}), ::testing::Contains(44));
  EXPECT_THAT(after({3, 5}), ::testing::Not(::testing::Contains(45)));
  EXPECT_NE(options.memory->recycled().Find(3, 4), nullptr);
  // The pair of the prompt's last token and the output's first.
  EXPECT_EQ(options.memory->recycled().Find(2, 3), nullptr);
  EXPECT_EQ(options.memory->recycled().Find(3, 5), nullptr);
  options.memory->Forget();
  EXPECT_THAT(after({3, 4}), ::testing::IsEmpty());
}

TEST(FusedDrafterTest, MemoryOfCandidatesIsBoundedAndReported) {
  FusedOptions options;
  options.recycled_sights = 256;
  const auto drafter = MakeFusedDrafter(options);
  drafter->StartRequest(Tokens{1, 2});
  drafter->Commit(Tokens{3});
  const size_t before = drafter->RequestBytes();
  for (TokenId token = 10; token < 2000; ++token) {
    drafter->Commit(Tokens{static_cast<TokenId>(3)});
    drafter->Observe(Verified({token}, {-1}, {}, {3, token}));
  }
  EXPECT_GE(drafter->RequestBytes(), before + 256 * 64);
  EXPECT_LE(drafter->RequestBytes(), before + 256 * 64 + 300 * 2048);
}

}  // namespace
}  // namespace foretoken
