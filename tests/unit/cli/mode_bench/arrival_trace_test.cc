// The arrival traces of `bench modes`.
#include "tools/cli/mode_bench/arrival_trace.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::mode_bench {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class ArrivalRoundLineTest : public ::testing::Test {
 protected:
  std::string TraceError(const std::string& text) {
    const auto arrivals = ReadArrivalTrace(dir_.Write("t.csv", text));
    return std::string(arrivals.status().message());
  }

  testing::TempDir dir_;
};

TEST_F(ArrivalRoundLineTest, ATraceHasTimesAndLengths) {
  const auto arrivals =
      ReadArrivalTrace(dir_.Write("t.csv",
                                  "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                  "2023-11-16 18:17:03.9799600,4808,10\r\n"
                                  "2023-11-16 18:17:04.0319600,3180,8\r\n"
                                  "2023-11-16 18:18:03.9799600,110,27\r\n"));
  ASSERT_THAT(arrivals, testing::IsOk());
  ASSERT_EQ(arrivals->size(), 3u);
  EXPECT_EQ((*arrivals)[0].at, absl::ZeroDuration());
  EXPECT_EQ((*arrivals)[1].at, absl::Milliseconds(52));
  EXPECT_EQ((*arrivals)[2].at, absl::Minutes(1));
  EXPECT_EQ((*arrivals)[0].output_tokens, 10);
  EXPECT_EQ((*arrivals)[2].output_tokens, 27);
  // Columns may stand in any order.
  const auto swapped = ReadArrivalTrace(dir_.Write(
      "s.csv", "GeneratedTokens,TIMESTAMP\n5,2024-01-01 00:00:00\n"));
  ASSERT_THAT(swapped, testing::IsOk());
  EXPECT_EQ((*swapped)[0].output_tokens, 5);
}

TEST_F(ArrivalRoundLineTest, ErrorsOfATraceNameLineAndColumn) {
  EXPECT_THAT(TraceError("a,b\n"),
              EndsWith("t.csv:1: header: no column TIMESTAMP"));
  const std::string header = "TIMESTAMP,GeneratedTokens\n";
  const std::string row = "2024-01-01 00:00:05,3\n";
  EXPECT_THAT(TraceError(header), EndsWith("t.csv: no arrivals"));
  EXPECT_THAT(TraceError(header + "yesterday,3\n"),
              HasSubstr("t.csv:2: column TIMESTAMP: 'yesterday', want YYYY"));
  EXPECT_THAT(
      TraceError(header + row + "2024-01-01 00:00:06,0\n"),
      HasSubstr("t.csv:3: column GeneratedTokens: '0', want a number of at"));
  EXPECT_THAT(TraceError(header + row + "2024-01-01 00:00:04,1\n"),
              HasSubstr("t.csv:3: column TIMESTAMP: earlier than the row"));
  EXPECT_THAT(TraceError(header + "2024-01-01 00:00:04\n"),
              HasSubstr("t.csv:2: 1 columns, want at least 2"));
}

}  // namespace
}  // namespace foretoken::mode_bench
