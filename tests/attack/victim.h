// The well-behaved client beside the attackers: one short request after
// another, whose outputs and times it records.
#ifndef FORETOKEN_TESTS_ATTACK_VICTIM_H_
#define FORETOKEN_TESTS_ATTACK_VICTIM_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/json_fwd.h"
#include "common/base/types.h"
#include "common/rpc/channel.h"
#include "tests/support/wire_client.h"

namespace foretoken::attack {

// Thread-compatible.
class Victim {
 public:
  // `metrics`: where it also reads /metrics, or empty.
  Victim(std::string server, std::string metrics, rpc::ChannelOptions options)
      : server_(std::move(server)),
        metrics_(std::move(metrics)),
        options_(std::move(options)) {}

  struct Report {
    std::vector<double> first_token_ms;
    double tokens_per_s = 0;
    int requests = 0;
    int failed = 0;
    int wrong = 0;
    int metrics_failed = 0;

    double FirstTokenMs(double quantile) const;
    Json ToJson() const;
  };

  // Sends requests for `time`, and on while `goes_on`. The first output is the
  // reference for all others: greedy, so that it depends on the prompt only.
  Report Run(
      absl::Duration time,
      const std::function<bool()>& goes_on = [] { return false; });

  // Whether a new connection is served within `time`.
  bool Recovers(absl::Duration time);

 private:
  // Appends the time to the first token to `times`.
  absl::Status Ask(std::vector<TokenId>& output, std::vector<double>& times);
  bool ReadsMetrics() const;

  const std::string server_;
  const std::string metrics_;
  const rpc::ChannelOptions options_;
  std::unique_ptr<testing::WireClient> client_;
  std::vector<TokenId> reference_;
};

}  // namespace foretoken::attack

#endif  // FORETOKEN_TESTS_ATTACK_VICTIM_H_
