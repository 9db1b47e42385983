#include "services/orchestrator/core/round/request_spans.h"

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::orchestrator {
namespace {

using ::testing::ElementsAre;

constexpr char kCaller[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const absl::Time kArrived = absl::FromUnixSeconds(1000);

struct Sink final : SpanSink {
  void Take(std::vector<Span> taken) override {
    for (Span& span : taken) spans.push_back(std::move(span));
  }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const Span& span : spans) result.emplace_back(span.name);
    return result;
  }
  std::vector<Span> spans;
};

TEST(RequestSpansTest, SpansFollowEachOtherBelowTheRequest) {
  Sink sink;
  const auto trace = RequestSpans::Create(kCaller, sink, kArrived);
  ASSERT_NE(trace, nullptr);
  const auto passed_on = TraceContext::Parse(trace->traceparent());
  trace->OnStart(kArrived + absl::Seconds(1));
  trace->OnPrefill({}, kArrived + absl::Seconds(3));
  trace->OnRound({}, kArrived + absl::Seconds(4));
  trace->OnRound({}, kArrived + absl::Seconds(6));
  EXPECT_TRUE(sink.spans.empty());
  trace->OnEnd("id", absl::OkStatus(), kArrived + absl::Seconds(7));
  EXPECT_THAT(sink.names(), ElementsAre("queue", "prefill", "round", "round",
                                        "foretoken.v1.Generation/Generate"));
  const TraceContext caller = *TraceContext::Parse(kCaller);
  const Span& request = sink.spans.back();
  EXPECT_EQ(request.parent, caller.span);
  EXPECT_EQ(request.id, passed_on->span);
  EXPECT_EQ(request.start, kArrived);
  EXPECT_EQ(request.end, kArrived + absl::Seconds(7));
  EXPECT_TRUE(request.error.empty());
  for (size_t i = 0; i + 1 < sink.spans.size(); ++i) {
    EXPECT_EQ(sink.spans[i].parent, request.id);
    EXPECT_EQ(sink.spans[i].trace, caller.trace);
    EXPECT_EQ(sink.spans[i].start, i == 0 ? kArrived : sink.spans[i - 1].end);
  }
}

TEST(RequestSpansTest, ARefusedRequestWasOnlyQueued) {
  Sink sink;
  const auto trace = RequestSpans::Create(kCaller, sink, kArrived);
  trace->OnEnd("id", absl::ResourceExhaustedError("text of a caller"),
               kArrived + absl::Seconds(2));
  EXPECT_THAT(sink.names(),
              ElementsAre("queue", "foretoken.v1.Generation/Generate"));
  EXPECT_EQ(sink.spans.back().error, "RESOURCE_EXHAUSTED");
}

TEST(RequestSpansTest, OnlyWhatTheCallerRecords) {
  Sink sink;
  std::string unsampled = kCaller;
  unsampled.back() = '0';
  for (const std::string& header :
       {std::string(), unsampled, std::string("nonsense")}) {
    EXPECT_EQ(RequestSpans::Create(header, sink, kArrived), nullptr);
  }
}

TEST(RequestSpansTest, ALongRequestHasABoundedNumberOfSpans) {
  Sink sink;
  const auto trace = RequestSpans::Create(kCaller, sink, kArrived);
  trace->OnStart(kArrived);
  for (int i = 0; i < 10'000; ++i) trace->OnRound({}, kArrived);
  trace->OnEnd("id", absl::OkStatus(), kArrived);
  EXPECT_EQ(static_cast<int64_t>(sink.spans.size()),
            RequestSpans::kMaxRounds + 2);
  const auto& attributes = sink.spans.back().attributes;
  ASSERT_EQ(attributes.size(), 3u);
  EXPECT_EQ(attributes[1].first, "foretoken.rounds");
  EXPECT_EQ(std::get<int64_t>(attributes[1].second), 10'000);
  EXPECT_EQ(attributes[2].first, "foretoken.rounds_without_span");
  EXPECT_EQ(std::get<int64_t>(attributes[2].second),
            10'000 - RequestSpans::kMaxRounds);
  // A span beside another one: twice, because the list grows by doubling.
  size_t bytes = 0;
  for (const Span& span : sink.spans) {
    bytes += 2 * sizeof(Span) +
             span.attributes.capacity() * sizeof(span.attributes[0]);
  }
  EXPECT_LT(bytes, size_t{64} << 10);
}

}  // namespace
}  // namespace foretoken::orchestrator
