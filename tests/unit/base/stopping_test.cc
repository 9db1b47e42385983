#include "common/base/stopping.h"

#include "gtest/gtest.h"

namespace foretoken {
namespace {

TEST(StoppingTest, IsToldFromOtherStatuses) {
  EXPECT_TRUE(IsStopping(StoppingError("the verifier")));
  EXPECT_EQ(StoppingError("the verifier").message(),
            "the verifier is stopping");
  EXPECT_FALSE(IsStopping(absl::OkStatus()));
  EXPECT_FALSE(IsStopping(absl::InternalError("the verifier is stopping")));
  EXPECT_FALSE(IsStopping(MarkStopping(absl::InternalError("it failed"))));
  // The words of a message are no mark.
  EXPECT_FALSE(IsStopping(absl::UnavailableError("the verifier is stopping")));
}

}  // namespace
}  // namespace foretoken
