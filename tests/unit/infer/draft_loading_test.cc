#include "common/infer/factory/draft_loading.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::Status Parse(std::vector<const char*> args, DraftLoading& loading) {
  Flags flags("svc", "A service.");
  loading.AddFlags(flags);
  args.insert(args.begin(), "svc");
  return flags.Parse(static_cast<int>(args.size()), args.data());
}

BackendOptions Backend(const DraftLoading& loading) {
  BackendOptions backend;
  backend.random_model =
      "d_model=64,layers=1,heads=2,kv_heads=1,d_ff=64,vocab=128";
  backend.threads = 1;
  loading.ApplyTo(backend);
  return backend;
}

TEST(DraftLoadingTest, TheFlagsReachTheModel) {
  DraftLoading loading;
  FORETOKEN_ASSERT_OK(Parse({}, loading));
  EXPECT_EQ(loading.weights, "auto");
  EXPECT_EQ(loading.vocabulary, 32768);
  FORETOKEN_ASSERT_OK(
      Parse({"--draft-weights=q4_0", "--draft-vocabulary=50"}, loading));
  const auto made = MakeBackend(Backend(loading));
  FORETOKEN_ASSERT_OK(made);
  EXPECT_THAT((*made)->numerics_fingerprint(),
              AllOf(HasSubstr(";matrices=q4_0;"),
                    HasSubstr(";conversion=q4_0;head=50,")));
  EXPECT_TRUE((*made)->Draws(49));
  EXPECT_FALSE((*made)->Draws(50));
}

TEST(DraftLoadingTest, OtherBackendsKeepTheirWeights) {
  BackendOptions backend = Backend(DraftLoading());
  backend.conversion = BackendOptions().conversion;
  backend.head_size = BackendOptions().head_size;
  const auto made = MakeBackend(backend);
  FORETOKEN_ASSERT_OK(made);
  EXPECT_THAT((*made)->numerics_fingerprint(),
              AllOf(HasSubstr(";matrices=bf16;"), Not(HasSubstr("conversion")),
                    Not(HasSubstr("head="))));
}

TEST(DraftLoadingTest, BadValuesAreRefusedByFlag) {
  DraftLoading loading;
  EXPECT_THAT(
      Parse({"--draft-weights=q4_k", "--draft-vocabulary=-1"}, loading),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          AllOf(HasSubstr("--draft-weights=q4_k (FORETOKEN_DRAFT_WEIGHTS)"),
                HasSubstr("--draft-vocabulary=-1"))));
  loading = DraftLoading();
  loading.weights = "q5_0";
  EXPECT_THAT(MakeBackend(Backend(loading)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--draft-weights=q5_0: want keep|auto")));
}

TEST(DraftLoadingTest, ATypeIsForTheCpu) {
  DraftLoading loading;
  loading.weights = "q8_0";
  BackendOptions backend = Backend(loading);
  backend.backend = "cuda";
  EXPECT_THAT(
      MakeBackend(backend).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("--draft-weights=q8_0 is for --backend=cpu only")));
}

}  // namespace
}  // namespace foretoken
