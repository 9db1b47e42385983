#include "common/metrics/vllm_names.h"

#include <string>

#include "common/metrics/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/metric_samples.h"
#include "tests/support/status_matchers.h"

namespace foretoken::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kLabels[] = "{engine=\"0\",model_name=\"m\"}";

double Value(const Registry& registry, const std::string& name) {
  const auto value = SampleValue(registry.Text(MetricNames::kVllm), name);
  FORETOKEN_EXPECT_OK(value);
  return value.ok() ? *value : -1;
}

TEST(VllmNamesTest, RequestsAndTokensAreSummedOverOurLabels) {
  Registry registry;
  registry.SetModelName("m");
  registry.GetGauge(kRequestsRunning).Set(7);
  registry.GetGauge(kRequestsWaiting).Set(2);
  registry.GetCounter(kGenerationTokens, "off").Increment(3);
  registry.GetCounter(kGenerationTokens, "auto").Increment(4);
  registry.GetCounter(kNumAcceptedTokens, "auto").Increment(5);
  registry.GetHistogram(kTimeToFirstToken).Observe(0.2);
  const auto value = [&](const std::string& name) {
    return Value(registry, name + kLabels);
  };
  EXPECT_EQ(value("vllm:num_requests_running"), 5);
  EXPECT_EQ(value("vllm:num_requests_waiting"), 2);
  EXPECT_EQ(value("vllm:generation_tokens_total"), 7);
  EXPECT_EQ(value("vllm:spec_decode_num_accepted_tokens_total"), 5);
  EXPECT_EQ(value("vllm:time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(value("vllm:time_to_first_token_seconds_sum"), 0.2);
  // Ours stay.
  EXPECT_EQ(Value(registry, "foretoken_generation_tokens_total{mode=\"off\"}"),
            3);
}

TEST(VllmNamesTest, PositionsKeepTheirLabel) {
  Registry registry;
  registry.SetModelName("m");
  registry.GetCounter(kNumAcceptedPerPosition, "0").Increment(3);
  registry.GetCounter(kNumAcceptedPerPosition, "1").Increment(2);
  const std::string name = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
  for (const auto& [position, want] : {std::pair("0", 3), {"1", 2}}) {
    EXPECT_EQ(
        Value(registry, name + "{engine=\"0\",model_name=\"m\",position=\"" +
                            position + "\"}"),
        want);
  }
}

TEST(VllmNamesTest, KvUseIsTheUsedPartOfThePages) {
  Registry registry;
  registry.SetModelName("m");
  registry.GetGauge(kKvPagesTotal);
  registry.GetGauge(kKvPagesFree);
  const std::string name = std::string("vllm:kv_cache_usage_perc") + kLabels;
  EXPECT_EQ(Value(registry, name), 0);  // before the engine is ready
  registry.GetGauge(kKvPagesTotal).Set(8);
  registry.GetGauge(kKvPagesFree).Set(6);
  EXPECT_EQ(Value(registry, name), 0.25);
  EXPECT_EQ(Value(registry, std::string("vllm:gpu_cache_usage_perc") + kLabels),
            0.25);
}

TEST(VllmNamesTest, AServiceExportsWhatItHasAndNoneUnlessAsked) {
  Registry registry;
  registry.GetCounter(kPreemptions).Increment();
  EXPECT_THAT(registry.Text(), Not(HasSubstr("vllm:")));
  const std::string page = registry.Text(MetricNames::kVllm);
  EXPECT_THAT(page, HasSubstr("vllm:num_preemptions_total{"));
  EXPECT_THAT(page, Not(HasSubstr("vllm:num_requests_running")));
  EXPECT_THAT(page, Not(HasSubstr("vllm:kv_cache_usage_perc")));
}

}  // namespace
}  // namespace foretoken::metrics
