#include "tools/cli/machine_balance.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::cli {
namespace {

TEST(MachineBalanceTest, EveryFigureIsMeasured) {
  for (const int threads : {1, 3}) {
    // A buffer of no whole number of slices.
    const auto balance = MeasureMachineBalance(threads, (1 << 20) + 77);
    FORETOKEN_ASSERT_OK(balance.status());
    EXPECT_EQ(balance->threads, threads);
    for (const double figure :
         {balance->read_gb_s, balance->fp32_multiply_adds_per_s * 1e-9,
          balance->int8_multiply_adds_per_s * 1e-9}) {
      // A thousandth to a thousand times what processors of today do.
      EXPECT_GT(figure, 1e-3);
      EXPECT_LT(figure, 1e6);
    }
  }
}

TEST(MachineBalanceTest, TheSmallestBufferIsReadToo) {
  const auto reads = ReadBandwidth::Create(/*threads=*/2, /*bytes=*/1);
  FORETOKEN_ASSERT_OK(reads.status());
  EXPECT_TRUE(std::isfinite((*reads)->GigabytesPerSecond()));
  EXPECT_GT((*reads)->GigabytesPerSecond(), 0);
}

}  // namespace
}  // namespace foretoken::cli
