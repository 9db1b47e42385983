#include "tests/attack/victim.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "tests/attack/http2_connection.h"

namespace foretoken::attack {
namespace {

constexpr int kTokens = 64;
constexpr int kPromptTokens = 16;
constexpr absl::Duration kDeadline = absl::Seconds(20);
constexpr int kMetricsWaitMs = 5000;

}  // namespace

double Victim::Report::FirstTokenMs(double quantile) const {
  if (first_token_ms.empty()) return 0;
  std::vector<double> sorted = first_token_ms;
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<size_t>(quantile *
                                    static_cast<double>(sorted.size() - 1))];
}

Json Victim::Report::ToJson() const {
  return {{"requests", requests},
          {"failed", failed},
          {"wrong", wrong},
          {"metrics_failed", metrics_failed},
          {"tokens_per_s", tokens_per_s},
          {"first_token_ms",
           {{"p50", FirstTokenMs(0.5)}, {"p95", FirstTokenMs(0.95)}}}};
}

Victim::Report Victim::Run(absl::Duration time,
                           const std::function<bool()>& goes_on) {
  Report report;
  const absl::Time start = MonotonicNow();
  int64_t tokens = 0;
  while (MonotonicNow() < start + time || goes_on()) {
    ++report.requests;
    report.metrics_failed += !ReadsMetrics();
    std::vector<TokenId> output;
    if (!Ask(output, report.first_token_ms).ok()) {
      ++report.failed;
      absl::SleepFor(absl::Milliseconds(20));
      continue;
    }
    tokens += static_cast<int64_t>(output.size());
    if (reference_.empty()) reference_ = output;
    report.wrong += output != reference_;
  }
  report.tokens_per_s = static_cast<double>(tokens) /
                        absl::ToDoubleSeconds(MonotonicNow() - start);
  return report;
}

bool Victim::Recovers(absl::Duration time) {
  const absl::Time end = MonotonicNow() + time;
  while (MonotonicNow() < end) {
    client_ = nullptr;
    std::vector<TokenId> output;
    std::vector<double> times;
    if (Ask(output, times).ok()) return true;
    absl::SleepFor(absl::Milliseconds(100));
  }
  return false;
}

absl::Status Victim::Ask(std::vector<TokenId>& output,
                         std::vector<double>& times) {
  if (client_ == nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(client_,
                               testing::WireClient::Connect(server_, options_));
  }
  v1::GenerateRequest request;
  for (int i = 1; i <= kPromptTokens; ++i) {
    request.mutable_token_ids()->add_ids(i);
  }
  request.set_max_tokens(kTokens);
  request.set_ignore_eos(true);
  const absl::Time asked = MonotonicNow();
  return client_
      ->Generate(request, asked + kDeadline,
                 [&](const v1::GenerateDelta& delta) {
                   if (output.empty()) {
                     times.push_back(
                         absl::ToDoubleMilliseconds(MonotonicNow() - asked));
                   }
                   output.insert(output.end(), delta.token_ids().begin(),
                                 delta.token_ids().end());
                   return true;
                 })
      .status();
}

bool Victim::ReadsMetrics() const {
  if (metrics_.empty()) return true;
  Http2Connection connection(metrics_);
  return connection.Send(
             "GET /metrics HTTP/1.1\r\nHost: foretoken\r\n"
             "Connection: close\r\n\r\n") &&
         connection.Answers(kMetricsWaitMs);
}

}  // namespace foretoken::attack
