#include "common/tracing/otlp_exporter.h"

#include <atomic>
#include <string>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/http_collector.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::HttpCollector;
using ::foretoken::testing::StatusIs;
using ::testing::_;

struct Counts {
  std::atomic<int64_t> exported{0}, dropped{0};
  OtlpExporter::Count counter() {
    return [this](bool sent, int64_t spans) {
      (sent ? exported : dropped) += spans;
    };
  }
};

OtlpOptions OptionsFor(const std::string& url) {
  OtlpOptions options;
  options.endpoint = *ParseOtlpEndpoint(url);
  options.service = "test";
  options.batch_time = absl::Milliseconds(5);
  return options;
}

int SpansIn(const std::string& body) {
  const auto json = ParseJson(body);
  EXPECT_THAT(json, testing::IsOk());
  return static_cast<int>(
      json->at("resourceSpans")[0]["scopeSpans"][0]["spans"].size());
}

TEST(OtlpEndpointTest, IsAnHttpUrlWithThePortAndPathOfOtlp) {
  const auto endpoint = ParseOtlpEndpoint("http://collector");
  FORETOKEN_ASSERT_OK(endpoint);
  EXPECT_EQ(endpoint->host, "collector");
  EXPECT_EQ(endpoint->port, "4318");
  EXPECT_EQ(endpoint->path, "/v1/traces");
  EXPECT_THAT(ParseOtlpEndpoint("collector:99"),
              StatusIs(absl::StatusCode::kInvalidArgument, _));
}

TEST(OtlpExporterTest, PostsBatchesAndCountsThem) {
  HttpCollector collector;
  Counts counts;
  {
    OtlpOptions options = OptionsFor(collector.url());
    options.batch_spans = 4;
    OtlpExporter exporter(options, counts.counter());
    exporter.Take(std::vector<Span>(10));
    ASSERT_TRUE(Eventually([&] { return counts.exported == 10; }));
    // What is queued at the end is sent, too.
    exporter.Take(std::vector<Span>(3));
  }
  EXPECT_EQ(counts.exported.load(), 13);
  EXPECT_EQ(counts.dropped.load(), 0);
  int spans = 0;
  for (const std::string& body : collector.bodies()) {
    EXPECT_LE(SpansIn(body), 4);
    spans += SpansIn(body);
  }
  EXPECT_EQ(spans, 13);
  EXPECT_EQ(collector.lines()[0], "POST /v1/traces HTTP/1.1");
}

TEST(OtlpExporterTest, AFullQueueDropsAndCounts) {
  HttpCollector collector;
  Counts counts;
  {
    OtlpOptions options = OptionsFor(collector.url());
    options.queue_spans = 8;
    options.batch_spans = 100;  // nothing is sent before the end
    options.batch_time = absl::Hours(1);
    OtlpExporter exporter(options, counts.counter());
    for (int i = 0; i < 50; ++i) exporter.Take(std::vector<Span>(5));
    EXPECT_EQ(counts.dropped.load(), 242);
    EXPECT_EQ(counts.exported.load(), 0);
  }
  EXPECT_EQ(counts.dropped.load(), 242);
  EXPECT_EQ(counts.exported.load(), 8);
}

TEST(OtlpExporterTest, ASilentCollectorDelaysTheEndByOneTimeout) {
  HttpCollector collector(0);  // never answers
  Counts counts;
  absl::Time stopped;
  {
    OtlpOptions options = OptionsFor(collector.url());
    options.batch_spans = 1;
    options.batch_time = absl::Hours(1);
    options.send_timeout = absl::Seconds(1);
    OtlpExporter exporter(options, counts.counter());
    exporter.Take(std::vector<Span>(100));
    stopped = MonotonicNow();
  }
  EXPECT_LT(MonotonicNow() - stopped, absl::Seconds(30));
  EXPECT_EQ(counts.exported.load(), 0);
  EXPECT_EQ(counts.dropped.load(), 100);
}

TEST(OtlpExporterTest, ACollectorThatComesBackGetsLaterSpans) {
  HttpCollector collector(500);
  Counts counts;
  OtlpExporter exporter(OptionsFor(collector.url()), counts.counter());
  exporter.Take(std::vector<Span>(2));
  ASSERT_TRUE(Eventually([&] { return counts.dropped == 2; }));
  collector.SetStatus(202);
  exporter.Take(std::vector<Span>(3));
  EXPECT_TRUE(Eventually([&] { return counts.exported == 3; }));
}

TEST(OtlpExporterTest, NoCollectorAtAllCostsTheSpans) {
  int port = 0;
  { port = HttpCollector().port(); }
  Counts counts;
  OtlpExporter exporter(OptionsFor("http://127.0.0.1:" + std::to_string(port)),
                        counts.counter());
  exporter.Take(std::vector<Span>(2));
  EXPECT_TRUE(Eventually([&] { return counts.dropped == 2; }));
}

}  // namespace
}  // namespace foretoken
