#include "common/drafting/drafter_factory.h"

#include <memory>
#include <string>
#include <vector>

#include "common/drafting/recorded_set.h"
#include "common/drafting/replay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;
using Tokens = std::vector<TokenId>;

absl::StatusOr<std::unique_ptr<Drafter>> Make(
    const std::string& mode, const DrafterResources& resources = {}) {
  const absl::StatusOr<Mode> parsed = Mode::Parse(mode, ModeUse::kReplay);
  if (!parsed.ok()) return parsed.status();
  return MakeDrafter(*parsed, resources);
}

Tokens DraftAfter(Drafter& drafter, const Tokens& prompt,
                  const Tokens& output) {
  DraftTree tree;
  drafter.StartRequest(prompt);
  drafter.Commit(output);
  drafter.Draft(64, tree);
  return tree.tokens;
}

TEST(DrafterFactoryTest, MakesWhatTheModeSays) {
  const Tokens prompt = {1, 2, 3, 1, 2, 4};
  const auto off = Make("off");
  FORETOKEN_ASSERT_OK(off);
  EXPECT_EQ(DraftAfter(**off, prompt, {1}), Tokens{});
  const auto first = Make("prompt_lookup:tokens=2");
  FORETOKEN_ASSERT_OK(first);
  EXPECT_EQ(DraftAfter(**first, prompt, {1, 2}), (Tokens{3, 1}));
  const auto latest = Make("prompt_lookup:tokens=2,match=latest");
  FORETOKEN_ASSERT_OK(latest);
  EXPECT_EQ(DraftAfter(**latest, prompt, {1, 2}), (Tokens{4, 1}));
  const auto trie = Make("ngram_trie:n=3,lp=2,num_draft=1");
  FORETOKEN_ASSERT_OK(trie);
  EXPECT_EQ(DraftAfter(**trie, prompt, {1}), Tokens{2});
  const auto pool = Make("phrase_pool:w=1,beta=2,k=1");
  FORETOKEN_ASSERT_OK(pool);
  EXPECT_EQ(DraftAfter(**pool, prompt, {1, 2}), Tokens{4});
}

TEST(DrafterFactoryTest, RequestsLearnByDefaultAndReplayDoesNot) {
  const auto drafted = [](const std::string& text, ModeUse use) {
    const auto drafter = MakeDrafter(*Mode::Parse(text, use), {});
    return DraftAfter(**drafter, {1}, {7, 8, 7});
  };
  EXPECT_EQ(drafted("ngram_trie", ModeUse::kReplay), Tokens{});
  EXPECT_EQ(drafted("ngram_trie:learn=1", ModeUse::kReplay), (Tokens{8, 7}));
  EXPECT_EQ(drafted("ngram_trie", ModeUse::kRequest), (Tokens{8, 7}));
  EXPECT_EQ(drafted("ngram_trie:learn=0", ModeUse::kRequest), Tokens{});
}

TEST(DrafterFactoryTest, AModeThatDraftsWithAModelIsRefusedByName) {
  for (const char* text : {"draft_model", "lookahead", "ouroboros"}) {
    EXPECT_THAT(MakeDrafter(*Mode::Parse(text), {}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  }
}

TEST(DrafterFactoryTest, ThePoolIsKeptWhereHistoryIs) {
  DrafterResources online;
  online.keep_history = true;
  const auto cold = Make("phrase_pool:beta=2");
  const auto kept = Make("phrase_pool:beta=2", online);
  FORETOKEN_ASSERT_OK(cold);
  FORETOKEN_ASSERT_OK(kept);
  for (Drafter* drafter : {cold->get(), kept->get()}) {
    DraftAfter(*drafter, {1, 2}, {3});
  }
  EXPECT_EQ(DraftAfter(**cold, {9}, {1}), Tokens{});
  EXPECT_EQ(DraftAfter(**kept, {9}, {1}), Tokens{2});
}

TEST(DrafterFactoryTest, AutoTakesSourcesAndPrice) {
  const Tokens prompt = {1, 2, 3, 1, 2, 4};
  DraftTree tree;
  EXPECT_EQ(DraftAfter(**Make("auto:request=0"), prompt, {1}), Tokens{});
  const Tokens all = DraftAfter(**Make("auto"), prompt, {1});
  EXPECT_THAT(all, ::testing::Contains(2));
  // The first node holds the most likely path, later ones less.
  const Tokens dear = DraftAfter(**Make("auto:price=0.3"), prompt, {1});
  EXPECT_LT(dear.size(), all.size());
  EXPECT_EQ(DraftAfter(**Make("auto:price=1"), prompt, {1}), Tokens{});
  DrafterResources online;
  online.keep_history = true;
  const auto kept = Make("auto:request=0", online);
  const auto ignored = Make("auto:request=0,history=0", online);
  for (const auto& drafter : {&kept, &ignored}) {
    DraftAfter(***drafter, {}, {5, 6, 7, 5, 6});
  }
  EXPECT_THAT(DraftAfter(**kept, {}, {5}), ::testing::Contains(6));
  EXPECT_EQ(DraftAfter(**ignored, {}, {5}), Tokens{});
}

struct BadMode {
  std::string mode;
  std::string message;
};

class BadModeTest : public ::testing::TestWithParam<BadMode> {};

TEST_P(BadModeTest, IsRefusedByName) {
  EXPECT_THAT(Make(GetParam().mode),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Modes, BadModeTest,
    ::testing::Values(
        BadMode{"oracle", "unknown mode 'oracle'"}, BadMode{"off:n=1", "n"},
        BadMode{"prompt_lookup:max_n=0", "max_n"},
        BadMode{"prompt_lookup:tokens=257", "tokens"},
        BadMode{"prompt_lookup:match=last", "match"},
        BadMode{"prompt_lookup:width=3", "width"},
        BadMode{"ngram_trie:n=1", "n"}, BadMode{"ngram_trie:n=33", "n"},
        BadMode{"ngram_trie:n=4,lp=4", "lp"},
        BadMode{"ngram_trie:num_draft=x", "num_draft"},
        BadMode{"ngram_trie:learn=2", "learn"},
        BadMode{"phrase_pool:beta=1", "beta"}, BadMode{"phrase_pool:w=0", "w"},
        BadMode{"phrase_pool:k=0", "k"}, BadMode{"auto:price=1.5", "price"},
        BadMode{"auto:price=-0.1", "price"},
        BadMode{"auto:history=2", "history"}));

// The same definition gives the same number: accept lengths that an independent
// implementation of each definition reached on the same data.
struct Reference {
  std::string name;
  std::string mode;
  int max_tree_nodes;
  bool online;
  // specbench, mtbench, shopping, classeval, financebench, code, gsm8k
  std::vector<double> accept_lengths;
};

class ReferenceTest : public ::testing::TestWithParam<Reference> {};

TEST_P(ReferenceTest, TheSameDefinitionGivesTheSameNumberOnEverySet) {
  const char* const files[] = {
      "specbench_vicuna-7b-v1.3",        "mtbench_vicuna-7b-v1.5",
      "shopping_vicuna-7b-v1.3",         "classeval_codellama-13b-instruct",
      "financebench_gpt-4-turbo-oracle", "code_wizardcoder-33b-v1.1",
      "gsm8k_gpt3-175b-finetuned"};
  FORETOKEN_DATA_OR_SKIP(model, "tokenizers/llama2/tokenizer.model");
  const auto tokenizer = Tokenizer::Load(model);
  FORETOKEN_ASSERT_OK(tokenizer);
  DrafterResources resources;
  resources.keep_history = GetParam().online;
  const auto drafter = Make(GetParam().mode, resources);
  FORETOKEN_ASSERT_OK(drafter);
  Replayer replayer(**drafter, GetParam().max_tree_nodes);
  for (size_t i = 0; i < GetParam().accept_lengths.size(); ++i) {
    FORETOKEN_DATA_OR_SKIP(path,
                           std::string("recorded/") + files[i] + ".jsonl.gz");
    const auto set = ReadRecordedSet(path, **tokenizer);
    FORETOKEN_ASSERT_OK(set);
    const auto result = replayer.Replay(*set, {}, [](int64_t) {});
    FORETOKEN_ASSERT_OK(result);
    const double want = GetParam().accept_lengths[i];
    EXPECT_NEAR(result->all.accept_length(), want, 0.005 * want) << files[i];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Definitions, ReferenceTest,
    ::testing::Values(
        Reference{"Off", "off", 64, false, {1, 1, 1, 1, 1, 1, 1}},
        Reference{"PromptLookup",
                  "prompt_lookup",
                  64,
                  false,
                  {1.753, 1.634, 2.232, 3.963, 1.793, 1.541, 1.669}},
        Reference{"NgramTrie",
                  "ngram_trie",
                  32,
                  false,
                  {1.531, 1.449, 2.134, 3.380, 1.655, 1.396, 1.360}},
        Reference{"NgramTrieLearning",
                  "ngram_trie:learn=1,num_draft=64",
                  64,
                  false,
                  {2.018, 1.857, 2.611, 5.134, 2.132, 1.731, 1.983}},
        Reference{"PhrasePoolCold",
                  "phrase_pool",
                  64,
                  false,
                  {1.850, 1.717, 2.269, 3.394, 1.887, 1.617, 1.808}},
        Reference{"PhrasePoolOnline",
                  "phrase_pool",
                  64,
                  true,
                  {1.994, 1.829, 2.774, 3.523, 2.147, 2.238, 2.068}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace foretoken
