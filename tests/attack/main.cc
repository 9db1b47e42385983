// foretoken-attack: attacks a server as a hostile client would, and measures
// what a well-behaved client sees before, during and after the attacks.
//
//   foretoken-attack --server 127.0.0.1:50050 --metrics 127.0.0.1:9100
//     --attacks idle_connections,reads_nothing --seconds 5
//
// Prints one JSON object. Exits with 1 if more than half of the well-behaved
// client's requests fail during the attacks, or any before, after or beside
// --others; if it cannot read /metrics, gets a different output than before, or
// keeps less than --min-share of what it had beside --others; if the server
// took more memory than --max-growth-mib; or if an attack tried nothing.
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
#include "common/config/flags.h"
#include "common/config/version.h"
#include "common/net/address.h"
#include "common/rpc/channel.h"
#include "tests/attack/attack_process.h"
#include "tests/attack/attacks.h"
#include "tests/attack/process_memory.h"
#include "tests/attack/victim.h"

namespace foretoken::attack {
namespace {

constexpr absl::Duration kRecovery = absl::Seconds(30);
constexpr absl::Duration kLastTry = absl::Seconds(30);
constexpr absl::Duration kPoll = absl::Milliseconds(20);
// The most that attacks may multiply the time to the first token by, where
// --min-share is checked.
constexpr double kMaxFirstTokenTimes = 2;

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

// Attacks for `time`, and up to kLastTry longer until every attack has tried
// something, which takes long on a busy machine; then prints what they did.
// Fails if an attack tried nothing: what the victim sees meanwhile would say
// nothing about it.
absl::StatusOr<int> RunAttacks(const Target& target,
                               const std::vector<std::string>& names,
                               absl::Duration time) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<const Attack*> attacks,
                             Chosen(names));
  // Below the victim and the server in priority; threads inherit it.
  setpriority(PRIO_PROCESS, 0, 19);
  std::atomic<bool> stop{false};
  std::vector<Tally> tallies(attacks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < attacks.size(); ++i) {
    threads.emplace_back([&, i] {
      attacks[i]->run({target, stop, tallies[i]});
    });
  }
  const absl::Time last = MonotonicNow() + time + kLastTry;
  absl::SleepFor(time);
  const auto idle = [&](size_t i) {
    return tallies[i].tried == 0 &&
           !(attacks[i]->on_metrics && target.metrics.empty());
  };
  for (size_t i = 0; i < attacks.size(); ++i) {
    while (idle(i) && MonotonicNow() < last) absl::SleepFor(kPoll);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  Json report = Json::object();
  for (size_t i = 0; i < attacks.size(); ++i) {
    report[attacks[i]->name] = {{"tried", tallies[i].tried.load()},
                                {"refused", tallies[i].refused.load()}};
  }
  std::printf("%s\n", DumpJson(report).c_str());
  for (size_t i = 0; i < attacks.size(); ++i) {
    if (idle(i)) {
      return absl::UnavailableError(
          absl::StrCat("attack ", attacks[i]->name, " tried nothing"));
    }
  }
  return 0;
}

struct Options {
  Target target;
  std::vector<std::string> attacks;
  absl::Duration seconds = absl::Seconds(5);
  int32_t others = 0;
  double min_share = 0;
  bool only_attacks = false;
  bool remote = false;
  rpc::ChannelOptions victim;
  std::string token_file;
  int32_t server_pid = 0;
  int64_t max_growth_mib = std::numeric_limits<int32_t>::max();
};

absl::StatusOr<Options> ParseFlags(int argc, char** argv) {
  Options options;
  options.target.server = "127.0.0.1:50050";
  std::string help;
  for (const Attack& attack : Attacks()) {
    if (attack.hostile) options.attacks.push_back(attack.name);
    absl::StrAppend(&help, "; ", attack.name, " ", attack.does);
  }
  Flags flags("foretoken-attack",
              "Attacks a server as a hostile client would.");
  flags.Version(VersionLine("foretoken-attack"));
  flags.String("server", &options.target.server,
               "Address of the server, HOST:PORT");
  flags.String("metrics", &options.target.metrics,
               "Address of its /metrics; empty: not attacked");
  flags.List("attacks", &options.attacks,
             absl::StrCat("Attacks to run at once", help));
  flags.Duration("seconds", &options.seconds,
                 {absl::Seconds(1), absl::Hours(1)}, "Duration of the attacks");
  flags.Int("scale", &options.target.scale, {1, 1024},
            "Connections or calls of an attack at once");
  flags.Int("megabytes-per-second", &options.target.megabytes_per_second,
            {0, 1 << 20},
            "Rate limit of an attack that sends large messages; 0: none");
  flags.String("attacker-token-file", &options.token_file,
               "Bearer token of the attackers");
  flags.Int("others", &options.others, {0, 1024},
            "Also measure the victim beside so many ordinary requests of the "
            "attackers at once, and compare with that");
  flags.Double("min-share", &options.min_share, {0, 1},
               "Share of its tokens per second beside --others that the victim "
               "must keep, at no more than twice the time to its first token "
               "(p95); 0: not checked");
  flags.Require("min-share", [&options]() -> std::string {
    return options.min_share > 0 && options.others == 0 ? "requires --others"
                                                        : "";
  });
  flags.Bool("only-attacks", &options.only_attacks,
             "Attack without a victim; fails only if an attack tries nothing");
  flags.Int("server-pid", &options.server_pid,
            {0, std::numeric_limits<int32_t>::max()},
            "Process of the server, to report its memory; 0: not reported");
  flags.Int64("max-growth-mib", &options.max_growth_mib,
              {0, std::numeric_limits<int32_t>::max()},
              "Maximum growth of its peak resident memory by the attacks");
  flags.Bool("remote", &options.remote, "Allow a server beyond this machine");
  options.victim.AddFlags(flags, "victim");
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  const std::string& server = options.target.server;
  if (!options.remote && !net::IsLocalAddress(server)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--server=", server, ": want an address of this machine, or --remote"));
  }
  if (!options.token_file.empty()) {
    rpc::ChannelOptions attacker;
    attacker.token_file = options.token_file;
    FORETOKEN_ASSIGN_OR_RETURN(const rpc::BearerToken token,
                               rpc::ReadToken(attacker));
    options.target.token = token.Get();
  }
  return options;
}

absl::StatusOr<std::unique_ptr<AttackProcess>> StartAttacks(
    const Options& options, const std::vector<std::string>& attacks,
    int32_t scale) {
  std::vector<std::string> arguments = {
      "--only-attacks",
      "--server=" + options.target.server,
      "--metrics=" + options.target.metrics,
      "--attacks=" + absl::StrJoin(attacks, ","),
      "--seconds=" + absl::FormatDuration(options.seconds),
      absl::StrCat("--scale=", scale),
      absl::StrCat("--megabytes-per-second=",
                   options.target.megabytes_per_second),
      "--attacker-token-file=" + options.token_file};
  if (options.remote) arguments.push_back("--remote");
  return AttackProcess::Start(arguments);
}

// What the victim keeps of what it had beside ordinary requests.
struct Share {
  double first_token_p95_times = 0;
  double tokens_per_s_times = 0;

  Json ToJson() const {
    return {{"first_token_p95_times", first_token_p95_times},
            {"tokens_per_s_times", tokens_per_s_times}};
  }
  // min_share 0: whatever it is.
  bool IsKept(double min_share) const {
    return min_share == 0 || (tokens_per_s_times >= min_share &&
                              first_token_p95_times <= kMaxFirstTokenTimes);
  }
};

// `fair` is what it had, without failures.
Share ShareOf(const Victim::Report& fair, const Victim::Report& meanwhile) {
  Share share;
  share.first_token_p95_times =
      meanwhile.FirstTokenMs(0.95) / fair.FirstTokenMs(0.95);
  share.tokens_per_s_times = meanwhile.tokens_per_s / fair.tokens_per_s;
  return share;
}

absl::StatusOr<int> Main(int argc, char** argv) {
  FORETOKEN_ASSIGN_OR_RETURN(const Options options, ParseFlags(argc, argv));
  const Target& target = options.target;
  if (options.only_attacks) {
    return RunAttacks(target, options.attacks, options.seconds);
  }
  FORETOKEN_RETURN_IF_ERROR(Chosen(options.attacks).status());

  Victim victim(target.server, target.metrics, options.victim);
  Json report;
  const Victim::Report before = victim.Run(options.seconds);
  if (before.failed > 0) {
    return absl::UnavailableError(
        absl::StrCat(target.server, ": does not serve even without an attack"));
  }
  report["before"] = before.ToJson();
  Victim::Report fair;
  if (options.others > 0) {
    FORETOKEN_ASSIGN_OR_RETURN(
        const auto others,
        StartAttacks(options, {kOrdinaryRequests}, options.others));
    fair = victim.Run(options.seconds);
    FORETOKEN_ASSIGN_OR_RETURN(const AttackProcess::Report load,
                               others->Finish());
    if (fair.failed > 0 || fair.requests == 0) {
      return absl::UnavailableError(absl::StrCat(
          target.server, ": beside ordinary requests ", fair.failed, " of ",
          fair.requests, " requests fail even without an attack"));
    }
    report["beside_others"] = fair.ToJson();
    report["others"] = load.attacks;
    report["others_processor_s"] = load.processor_s;
  }
  ProcessMemory idle;
  if (options.server_pid != 0) {
    FORETOKEN_RETURN_IF_ERROR(ResetPeak(options.server_pid));
    FORETOKEN_ASSIGN_OR_RETURN(idle, MemoryOf(options.server_pid));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto attackers,
      StartAttacks(options, options.attacks, target.scale));
  const Victim::Report meanwhile =
      victim.Run(options.seconds, [&] { return attackers->Attacks(); });
  FORETOKEN_ASSIGN_OR_RETURN(const AttackProcess::Report attack,
                             attackers->Finish());
  report["meanwhile"] = meanwhile.ToJson();
  bool share_kept = true;
  if (options.others > 0) {
    const Share share = ShareOf(fair, meanwhile);
    report["share"] = share.ToJson();
    share_kept = share.IsKept(options.min_share);
  }
  report["attacks"] = attack.attacks;
  report["attackers_processor_s"] = attack.processor_s;
  bool memory_kept = true;
  if (options.server_pid != 0) {
    FORETOKEN_ASSIGN_OR_RETURN(const ProcessMemory now,
                               MemoryOf(options.server_pid));
    const int64_t growth = now.peak - idle.resident;
    report["memory_mib"] = {{"idle", idle.resident >> 20},
                            {"peak", now.peak >> 20},
                            {"growth", growth >> 20}};
    memory_kept = growth >> 20 <= options.max_growth_mib;
  }
  const bool served = victim.Recovers(kRecovery);
  const Victim::Report after = victim.Run(options.seconds);
  report["served_again"] = served;
  report["after"] = after.ToJson();
  std::printf("%s\n", DumpJson(report).c_str());
  const int wrong = before.wrong + fair.wrong + meanwhile.wrong + after.wrong;
  // A scraper may be displaced now and then by those who connect all the time.
  const bool scraped =
      meanwhile.metrics_failed <= std::max(1, meanwhile.requests / 10) &&
      after.metrics_failed == 0;
  const std::pair<bool, const char*> criteria[] = {
      {meanwhile.failed * 2 <= meanwhile.requests,
       "more than half of the client's requests failed during the attacks"},
      {served && after.failed == 0, "requests failed after the attacks"},
      {scraped, "the metrics page did not answer"},
      {wrong == 0, "the output differed"},
      {share_kept, "the client kept less than its share"},
      {memory_kept, "the server's memory grew beyond --max-growth-mib"},
  };
  int exit_code = 0;
  for (const auto& [kept, failure] : criteria) {
    if (kept) continue;
    std::fprintf(stderr, "FAILED: %s\n", failure);
    exit_code = 1;
  }
  return exit_code;
}

}  // namespace
}  // namespace foretoken::attack

int main(int argc, char** argv) {
  const absl::StatusOr<int> exit_code = foretoken::attack::Main(argc, argv);
  return exit_code.ok() ? *exit_code
                        : foretoken::ExitWithError(exit_code.status());
}
