#include "common/tracing/trace_context.h"

#include <string>

#include "gtest/gtest.h"

namespace foretoken {
namespace {

constexpr char kValid[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContextTest, ReadsAndWritesTheHeader) {
  const auto context = TraceContext::Parse(kValid);
  ASSERT_TRUE(context.has_value());
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(context->trace[0], 0x4b);
  EXPECT_EQ(context->trace[15], 0x36);
  EXPECT_EQ(context->span[7], 0xb7);
  EXPECT_EQ(context->Header(), kValid);
  std::string other = kValid;
  other.back() = '0';
  EXPECT_FALSE(TraceContext::Parse(other)->sampled);
}

TEST(TraceContextTest, AChildHasTheTraceAndASpanOfItsOwn) {
  const auto context = TraceContext::Parse(kValid);
  const TraceContext child = context->Child();
  EXPECT_EQ(child.trace, context->trace);
  EXPECT_NE(child.span, context->span);
  EXPECT_NE(child.span, context->Child().span);
  EXPECT_TRUE(child.sampled);
}

TEST(TraceContextTest, TakesNothingElse) {
  const std::string valid = kValid;
  for (size_t length = 0; length < valid.size(); ++length) {
    EXPECT_FALSE(TraceContext::Parse(valid.substr(0, length)).has_value());
  }
  for (size_t at = 0; at < valid.size(); ++at) {
    for (const char bad : {'G', 'A', ' ', '\n', '\0', '\xff'}) {
      std::string changed = valid;
      changed[at] = bad;
      EXPECT_FALSE(TraceContext::Parse(changed).has_value()) << at;
    }
  }
  EXPECT_FALSE(TraceContext::Parse(valid + "-00").has_value());
  EXPECT_FALSE(TraceContext::Parse("ff" + valid.substr(2)).has_value());
  EXPECT_FALSE(TraceContext::Parse(
                   "00-00000000000000000000000000000000-00f067aa0ba902b7-01")
                   .has_value());
  EXPECT_FALSE(TraceContext::Parse(
                   "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01")
                   .has_value());
  // A later version may append fields, after a hyphen.
  EXPECT_TRUE(TraceContext::Parse("01" + valid.substr(2)).has_value());
  EXPECT_TRUE(
      TraceContext::Parse("01" + valid.substr(2) + "-more").has_value());
  EXPECT_FALSE(
      TraceContext::Parse("01" + valid.substr(2) + "more").has_value());
}

}  // namespace
}  // namespace foretoken
