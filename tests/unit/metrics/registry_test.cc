#include "common/metrics/registry.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/metric_samples.h"
#include "tests/support/status_matchers.h"

namespace foretoken::metrics {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

std::string HttpGet(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  const std::string request =
      "GET " + path + " HTTP/1.0\r\nHost: localhost\r\n\r\n";
  EXPECT_EQ(send(fd, request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  std::string reply;
  char buffer[4096];
  ssize_t n;
  while ((n = read(fd, buffer, sizeof(buffer))) > 0) reply.append(buffer, n);
  close(fd);
  return reply;
}

TEST(CatalogTest, NamesFollowTheConventions) {
  std::set<std::string> names;
  std::vector<Catalog> catalogs(std::begin(kCatalogs), std::end(kCatalogs));
  catalogs.push_back({"", kProcessMetrics});
  for (const Catalog& catalog : catalogs) {
    for (const Spec* spec : catalog.metrics) {
      const std::string name = spec->name;
      EXPECT_TRUE(names.insert(name).second) << name << " twice";
      EXPECT_TRUE(std::regex_match(name, std::regex("foretoken_[a-z0-9_]+")))
          << name;
      EXPECT_EQ(spec->kind == Kind::kCounter, absl::EndsWith(name, "_total"))
          << name;
      EXPECT_EQ(spec->kind == Kind::kHistogram, !spec->bounds.empty()) << name;
      EXPECT_TRUE(std::is_sorted(spec->bounds.begin(), spec->bounds.end()))
          << name;
      EXPECT_STRNE(spec->help, "") << name;
    }
  }
}

TEST(RegistryTest, SamplesAreReadBackFromThePage) {
  Registry registry;
  registry.GetCounter(kRequests, "OK").Increment(3);
  registry.GetGauge(kSessions).Set(2);
  registry.GetHistogram(kPassRows, "").Observe(5);
  const std::string page = registry.Text();
  EXPECT_EQ(*SampleValue(page, "foretoken_requests_total{code=\"OK\"}"), 3);
  EXPECT_EQ(*SampleValue(page, "foretoken_sessions"), 2);
  EXPECT_EQ(*SampleValue(page, "foretoken_pass_rows_bucket{le=\"4\"}"), 0);
  EXPECT_EQ(*SampleValue(page, "foretoken_pass_rows_bucket{le=\"8\"}"), 1);
  EXPECT_THAT(
      SampleValue(page, "foretoken_none"),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("foretoken_none")));
}

TEST(RegistryTest, CodesAreCountedByTheirName) {
  Registry registry;
  CodeCounters failed(registry, kSessionsFailed);
  CodeCounters ended(registry, kRequests, CodeCounters::kWithOk);
  failed.Increment(absl::StatusCode::kOk);  // has no counter
  failed.Increment(absl::StatusCode::kResourceExhausted);
  ended.Increment(absl::StatusCode::kOk);
  ended.Increment(static_cast<absl::StatusCode>(99));
  const std::string page = registry.Text();
  EXPECT_EQ(*SampleValue(page, "foretoken_requests_total{code=\"OK\"}"), 1);
  EXPECT_EQ(*SampleValue(page,
                         "foretoken_sessions_failed_total{code=\"RESOURCE_"
                         "EXHAUSTED\"}"),
            1);
  EXPECT_FALSE(
      SampleValue(page, "foretoken_sessions_failed_total{code=\"OK\"}").ok());
}

TEST(RegistryTest, ATotalThatIsKeptElsewhereIsShownAsItIs) {
  Registry registry;
  TotalCounter passes(registry, kPasses);
  passes.Set(3);
  passes.Set(3);
  passes.Set(7);
  EXPECT_EQ(*SampleValue(registry.Text(), "foretoken_passes_total"), 7);
}

TEST(RegistryTest, TotalsOfOneNameAreAddedUpWheneverThePageIsMade) {
  Registry registry;
  const auto shown = [&] {
    return *SampleValue(registry.Text(),
                        "foretoken_unauthenticated_calls_total");
  };
  EXPECT_EQ(shown(), 0);
  int64_t http = 0, grpc = 2;
  registry.AddTotal(kUnauthenticated, [&] { return http; });
  registry.AddTotal(kUnauthenticated, [&] { return grpc; });
  EXPECT_EQ(shown(), 2);
  http = 5;
  EXPECT_EQ(shown(), 7);
  EXPECT_EQ(shown(), 7);
}

TEST(RegistryTest, OneChildPerLabelValue) {
  Registry registry;
  prometheus::Counter& ok = registry.GetCounter(kRequests, "OK");
  EXPECT_EQ(&ok, &registry.GetCounter(kRequests, "OK"));
  EXPECT_NE(&ok, &registry.GetCounter(kRequests, "CANCELLED"));
}

TEST(ExposerTest, ServesThePageOnAFreeLoopbackPort) {
  Registry registry;
  registry.GetCounter(kPasses, "").Increment(7);
  auto exposer = Exposer::Start(ExposerOptions{}, registry);
  FORETOKEN_ASSERT_OK(exposer);
  ASSERT_GT((*exposer)->port(), 0);
  EXPECT_THAT(HttpGet((*exposer)->port(), "/metrics"),
              HasSubstr("foretoken_passes_total 7"));
}

TEST(ExposerTest, ATakenPortIsAnErrorThatNamesIt) {
  Registry registry;
  auto first = Exposer::Start(ExposerOptions{}, registry);
  FORETOKEN_ASSERT_OK(first);
  const std::string address = "127.0.0.1:" + std::to_string((*first)->port());
  ExposerOptions taken;
  taken.address = address;
  EXPECT_THAT(Exposer::Start(taken, registry),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(address)));
}

TEST(ExposerTest, AnEmptyAddressServesNothing) {
  Registry registry;
  ExposerOptions none;
  none.address = "";
  auto exposer = Exposer::Start(none, registry);
  FORETOKEN_ASSERT_OK(exposer);
  EXPECT_EQ((*exposer)->port(), 0);
}

}  // namespace
}  // namespace foretoken::metrics
