#include "common/tracing/otlp_json.h"

#include "common/base/json.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

TEST(OtlpJsonTest, OneResourceOneScopeAndItsSpans) {
  const TraceContext caller = *TraceContext::Parse(
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  Span span;
  span.trace = caller.trace;
  span.id = {1, 2, 3, 4, 5, 6, 7, 0xff};
  span.parent = caller.span;
  span.kind = Span::Kind::kServer;
  span.name = "round";
  span.start = absl::FromUnixNanos(1'699'999'990'123'456'789);
  span.end = span.start + absl::Milliseconds(2);
  span.attributes = {{"rows", int64_t{7}}, {"mode", std::string("au\"to")}};
  span.error = "INTERNAL";
  const auto json =
      ParseJson(OtlpJson("orchestrator", {span}, absl::Seconds(10)));
  ASSERT_TRUE(json.ok());
  const Json& resource = json->at("resourceSpans").at(0);
  EXPECT_EQ(resource["resource"]["attributes"][0]["key"], "service.name");
  EXPECT_EQ(resource["resource"]["attributes"][0]["value"]["stringValue"],
            "orchestrator");
  const Json& got = resource["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(got["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(got["spanId"], "01020304050607ff");
  EXPECT_EQ(got["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_EQ(got["name"], "round");
  EXPECT_EQ(got["kind"], 2);
  EXPECT_EQ(got["startTimeUnixNano"], "1700000000123456789");
  EXPECT_EQ(got["endTimeUnixNano"], "1700000000125456789");
  EXPECT_EQ(got["attributes"][0]["value"]["intValue"], "7");
  EXPECT_EQ(got["attributes"][1]["value"]["stringValue"], "au\"to");
  EXPECT_EQ(got["status"]["code"], 2);
}

}  // namespace
}  // namespace foretoken
