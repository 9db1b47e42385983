// foretoken-attack: attacks a server as a hostile client would, and measures
// what a well-behaved client sees before, during and after the attacks.
//
//   foretoken-attack --server 127.0.0.1:50050 --metrics 127.0.0.1:9100
//     --attacks idle_connections,reads_nothing --seconds 5
//
// Prints one JSON object. Exits with 1 if the well-behaved client is not served
// during the attacks or again afterwards, cannot read /metrics, gets a
// different output than before, or if the server took more memory than
// --max-growth-mib.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/base/types.h"
#include "common/config/flags.h"
#include "common/rpc/address.h"
#include "common/rpc/channel.h"
#include "tools/attack_client/attacks.h"
#include "tools/attack_client/http2_connection.h"
#include "tools/attack_client/process_memory.h"

namespace foretoken::attack {
namespace {

constexpr int kVictimTokens = 64;
constexpr absl::Duration kVictimDeadline = absl::Seconds(20);
constexpr int kMetricsWaitMs = 5000;
constexpr absl::Duration kRecovery = absl::Seconds(30);

// The well-behaved client: one short request after another.
class Victim {
 public:
  // `metrics`: where it also reads /metrics, or empty.
  Victim(const std::string& server, const std::string& metrics,
         const rpc::ChannelOptions& options)
      : server_(server), metrics_(metrics), options_(options) {}

  struct Report {
    std::vector<double> first_token_ms;
    double tokens_per_second = 0;
    int requests = 0;
    int failed = 0;
    int wrong = 0;
    int metrics_failed = 0;
  };

  // Sends requests for `time`. The first output is the reference for all
  // others: greedy, so that it depends on the prompt only.
  Report Run(absl::Duration time) {
    Report report;
    const absl::Time start = MonotonicNow();
    int64_t tokens = 0;
    while (MonotonicNow() < start + time) {
      ++report.requests;
      report.metrics_failed += !ReadsMetrics();
      const absl::Time asked = MonotonicNow();
      std::vector<TokenId> output;
      const absl::Status status = Ask(output, report.first_token_ms, asked);
      if (!status.ok()) {
        ++report.failed;
        absl::SleepFor(absl::Milliseconds(20));
        continue;
      }
      tokens += static_cast<int64_t>(output.size());
      if (reference_.empty()) reference_ = output;
      report.wrong += output != reference_;
    }
    report.tokens_per_second = static_cast<double>(tokens) /
                               absl::ToDoubleSeconds(MonotonicNow() - start);
    return report;
  }

  // A new connection is served within `time`.
  bool Recovers(absl::Duration time) {
    const absl::Time end = MonotonicNow() + time;
    while (MonotonicNow() < end) {
      client_ = nullptr;
      std::vector<TokenId> output;
      std::vector<double> times;
      if (Ask(output, times, MonotonicNow()).ok()) return true;
      absl::SleepFor(absl::Milliseconds(100));
    }
    return false;
  }

 private:
  absl::Status Ask(std::vector<TokenId>& output, std::vector<double>& times,
                   absl::Time asked) {
    if (client_ == nullptr) {
      FORETOKEN_ASSIGN_OR_RETURN(
          client_, rpc::GenerationClient::Connect(server_, options_));
    }
    v1::GenerateRequest request;
    for (int i = 1; i <= 16; ++i) request.mutable_token_ids()->add_ids(i);
    request.set_max_tokens(kVictimTokens);
    request.set_ignore_eos(true);
    return client_
        ->Generate(request, asked + kVictimDeadline,
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

  bool ReadsMetrics() const {
    if (metrics_.empty()) return true;
    Http2Connection connection(metrics_);
    return connection.Send(
               "GET /metrics HTTP/1.1\r\nHost: foretoken\r\n"
               "Connection: close\r\n\r\n") &&
           connection.Answers(kMetricsWaitMs);
  }

  const std::string server_;
  const std::string metrics_;
  const rpc::ChannelOptions options_;
  std::unique_ptr<rpc::GenerationClient> client_;
  std::vector<TokenId> reference_;
};

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q *
                                    static_cast<double>(values.size() - 1))];
}

Json ToJson(const Victim::Report& report) {
  return {{"requests", report.requests},
          {"failed", report.failed},
          {"wrong", report.wrong},
          {"metrics_failed", report.metrics_failed},
          {"tokens_per_s", report.tokens_per_second},
          {"first_token_ms",
           {{"p50", Quantile(report.first_token_ms, 0.5)},
            {"p95", Quantile(report.first_token_ms, 0.95)}}}};
}

double ProcessorSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec +
                                    usage.ru_stime.tv_usec);
}

absl::StatusOr<std::vector<const Attack*>> Chosen(
    const std::vector<std::string>& names) {
  std::vector<const Attack*> chosen;
  for (const std::string& name : names) {
    const auto attack =
        std::find_if(Attacks().begin(), Attacks().end(),
                     [&](const Attack& each) { return each.name == name; });
    if (attack == Attacks().end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown attack '", name, "'"));
    }
    chosen.push_back(&*attack);
  }
  return chosen;
}

absl::StatusOr<int> Main(int argc, char** argv) {
  Target target;
  target.server = "127.0.0.1:50050";
  std::vector<std::string> names;
  std::string help;
  for (const Attack& attack : Attacks()) {
    names.push_back(attack.name);
    absl::StrAppend(&help, "; ", attack.name, " ", attack.does);
  }
  absl::Duration seconds = absl::Seconds(5);
  bool remote = false;
  rpc::ChannelOptions victim_channel;
  std::string token_file;
  int32_t server_pid = 0;
  int64_t max_growth_mib = std::numeric_limits<int32_t>::max();
  Flags flags("foretoken-attack",
              "Attacks a server as a hostile client would.");
  flags.String("server", &target.server, "Address of the server, HOST:PORT");
  flags.String("metrics", &target.metrics,
               "Address of its /metrics; empty: not attacked");
  flags.List("attacks", &names, absl::StrCat("Attacks to run at once", help));
  flags.Duration("seconds", &seconds, {absl::Seconds(1), absl::Hours(1)},
                 "Duration of the attacks");
  flags.Int("scale", &target.scale, {1, 1024},
            "Connections or calls of an attack at once");
  flags.String("attacker-token-file", &token_file,
               "Bearer token of the attackers");
  flags.Int("server-pid", &server_pid, {0, std::numeric_limits<int32_t>::max()},
            "Process of the server, to report its memory; 0: not reported");
  flags.Int64("max-growth-mib", &max_growth_mib,
              {0, std::numeric_limits<int32_t>::max()},
              "Maximum growth of its peak resident memory by the attacks");
  flags.Bool("remote", &remote, "Allow a server beyond this machine");
  victim_channel.AddFlags(flags, "victim");
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  if (!remote && !rpc::IsLocalAddress(target.server)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--server=", target.server,
                     ": want an address of this machine, or --remote"));
  }
  if (!token_file.empty()) {
    rpc::ChannelOptions attacker;
    attacker.token_file = token_file;
    FORETOKEN_ASSIGN_OR_RETURN(const rpc::BearerToken token,
                               rpc::ReadToken(attacker));
    target.token = token.Get();
  }
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<const Attack*> attacks,
                             Chosen(names));

  Victim victim(target.server, target.metrics, victim_channel);
  Json report;
  const Victim::Report before = victim.Run(seconds);
  if (before.failed > 0) {
    return absl::UnavailableError(
        absl::StrCat(target.server, ": does not serve even without an attack"));
  }
  report["before"] = ToJson(before);
  ProcessMemory idle;
  if (server_pid != 0) {
    FORETOKEN_RETURN_IF_ERROR(ResetPeak(server_pid));
    FORETOKEN_ASSIGN_OR_RETURN(idle, MemoryOf(server_pid));
  }
  const double processor = ProcessorSeconds();
  std::atomic<bool> stop{false};
  std::vector<Tally> tallies(attacks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < attacks.size(); ++i) {
    threads.emplace_back([&, i] {
      // Below the victim's client in priority: Linux nices single threads.
      setpriority(PRIO_PROCESS, 0, 10);
      attacks[i]->run({target, stop, tallies[i]});
    });
  }
  const Victim::Report meanwhile = victim.Run(seconds);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  report["meanwhile"] = ToJson(meanwhile);
  report["processor_s"] = ProcessorSeconds() - processor;
  for (size_t i = 0; i < attacks.size(); ++i) {
    report["attacks"][attacks[i]->name] = {
        {"tried", tallies[i].tried.load()},
        {"refused", tallies[i].refused.load()}};
  }
  bool memory_kept = true;
  if (server_pid != 0) {
    FORETOKEN_ASSIGN_OR_RETURN(const ProcessMemory now, MemoryOf(server_pid));
    const int64_t growth = now.peak - idle.resident;
    report["memory_mib"] = {{"idle", idle.resident >> 20},
                            {"peak", now.peak >> 20},
                            {"growth", growth >> 20}};
    memory_kept = growth >> 20 <= max_growth_mib;
  }
  const bool served = victim.Recovers(kRecovery);
  const Victim::Report after = victim.Run(seconds);
  report["served_again"] = served;
  report["after"] = ToJson(after);
  std::printf("%s\n", DumpJson(report).c_str());
  const int wrong = before.wrong + meanwhile.wrong + after.wrong;
  // A scraper may be displaced now and then by those who connect all the time.
  const bool scraped = meanwhile.metrics_failed * 10 <= meanwhile.requests &&
                       after.metrics_failed == 0;
  const bool all_kept = served && scraped &&
                        meanwhile.requests > meanwhile.failed &&
                        after.failed == 0 && wrong == 0 && memory_kept;
  return all_kept ? 0 : 1;
}

}  // namespace
}  // namespace foretoken::attack

int main(int argc, char** argv) {
  const absl::StatusOr<int> exit_code = foretoken::attack::Main(argc, argv);
  return exit_code.ok() ? *exit_code
                        : foretoken::ExitWithError(exit_code.status());
}
