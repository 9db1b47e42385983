#include "common/drafting/crest/crest_drafter.h"

#include <memory>

#include "common/drafting/drafter_factory.h"
#include "common/drafting/replay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FakeSource final : public CrestSource {
 public:
  absl::StatusOr<int> Lookup(absl::Span<const TokenId> context,
                             CrestTree& tree) override {
    asked.assign(context.begin(), context.end());
    if (!status.ok()) return status;
    tree = answer;
    return answer.size() > 0 ? 1 : 0;
  }
  const CrestMeta& meta() const override { return meta_; }
  size_t bytes() const override { return 5; }

  std::vector<TokenId> asked;
  CrestTree answer;
  absl::Status status;

 private:
  CrestMeta meta_;
};

TEST(CrestDrafterTest, DraftsTheFrontOfTheTreeWithSharesAsProbabilities) {
  auto source = std::make_shared<FakeSource>();
  source->answer = {{4, 5, 6}, {-1, 0, -1}, {8, 4, 2}, 16};
  CrestDrafter drafter(source);
  drafter.StartRequest({1, 2});
  drafter.Commit({3});
  DraftTree tree;
  drafter.Draft(2, tree);
  EXPECT_THAT(source->asked, ElementsAre(1, 2, 3));
  EXPECT_THAT(tree.tokens, ElementsAre(4, 5));
  EXPECT_THAT(tree.parents, ElementsAre(-1, 0));
  EXPECT_THAT(tree.probs, ElementsAre(FloatEq(0.5), FloatEq(0.25)));
}

TEST(CrestDrafterTest, KeepsTheLastTokensOfTheRequestAlone) {
  auto source = std::make_shared<FakeSource>();
  CrestDrafter drafter(source);
  drafter.StartRequest({9, 9, 9});
  drafter.StartRequest({1, 2, 3, 4, 5, 6, 7, 8, 9});
  drafter.Commit({10, 11});
  DraftTree tree;
  drafter.Draft(64, tree);
  EXPECT_THAT(source->asked, ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
}

TEST(CrestDrafterTest, AFailingStoreCostsTheDraftAndIsReported) {
  auto source = std::make_shared<FakeSource>();
  source->status = absl::UnavailableError("gone");
  CrestDrafter drafter(source);
  drafter.StartRequest({1});
  DraftTree tree;
  tree.Add(1, kRootParent, 1);
  drafter.Draft(64, tree);
  EXPECT_THAT(tree.tokens, IsEmpty());
  EXPECT_EQ(drafter.DraftStatus(), source->status);
  EXPECT_THAT(drafter.DraftStatus(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("gone")));
  source->status = absl::OkStatus();
  drafter.Draft(64, tree);
  FORETOKEN_EXPECT_OK(drafter.DraftStatus());
}

TEST(CrestDrafterTest, AFailingStoreFailsTheReplay) {
  auto source = std::make_shared<FakeSource>();
  CrestDrafter drafter(source);
  RecordedSet set;
  set.file = "set";
  set.turns.resize(1);
  set.turns[0].prompt = {1, 2};
  set.turns[0].output = {3, 4, 5};
  const auto no_progress = [](int64_t) {};
  FORETOKEN_EXPECT_OK(Replayer(drafter, 8).Replay(set, {}, no_progress));
  source->status = absl::UnavailableError("gone");
  EXPECT_THAT(Replayer(drafter, 8).Replay(set, {}, no_progress),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("gone")));
}

absl::StatusOr<std::unique_ptr<Drafter>> Make(
    const std::string& mode, const DrafterResources& resources) {
  const auto parsed = Mode::Parse(mode, ModeUse::kReplay);
  if (!parsed.ok()) return parsed.status();
  return MakeDrafter(*parsed, resources);
}

TEST(CrestModeTest, NamesTheDatastoreThatIsMissing) {
  EXPECT_THAT(Make("crest", {}), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("no CREST datastore")));
}

TEST(CrestModeTest, TakesNoKeys) {
  DrafterResources resources;
  resources.crest = std::make_shared<FakeSource>();
  FORETOKEN_EXPECT_OK(Make("crest", resources));
  EXPECT_THAT(Make("crest:n=3", resources),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("n")));
}

}  // namespace
}  // namespace foretoken
