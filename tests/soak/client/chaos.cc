#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "tests/soak/client/soak.h"

namespace foretoken::soak {
namespace {

constexpr int kReferences = 48;
constexpr int kMinTokens = 8;
constexpr int kScopes = 8;
// Deadline of a request that is neither cancelled nor hurried, with retries.
constexpr absl::Duration kPatience = absl::Minutes(2);
constexpr int kLongestHurryMs = 400;
// A request that ends this long after its deadline or cancel was stuck.
constexpr absl::Duration kSlack = absl::Seconds(10);

enum class Fate { kWhole, kCancel, kDeadline };
constexpr std::array<const char*, 3> kFates = {"whole", "cancelled", "hurried"};

// Parameters of one request, derived from its number.
struct Plan {
  size_t work = 0;
  std::string mode;
  std::string scope;
  Fate fate = Fate::kWhole;
  int max_tokens = 0;
  size_t stop_after = 0;
  absl::Duration time = kPatience;
};

// The figures of a mode, as in the report: requests by outcome, except
// kTokensCompared.
enum Figure {
  kWhole,
  kTokensCompared,  // of the whole requests, all compared
  kCancelled,
  kOutOfTime,
  kRefusals,    // answers that invite a retry, each followed by one
  kUnexpected,  // any other code
  kLate,        // ended long after its deadline or cancel
  kWrongTokens,
};
constexpr std::array<const char*, kWrongTokens + 1> kFigures = {
    "whole",    "tokens_compared", "cancelled", "out_of_time",
    "refusals", "unexpected",      "late",      "wrong_tokens"};

using Tally = std::array<int64_t, kFigures.size()>;

int64_t Bad(const Tally& tally) {
  return tally[kUnexpected] + tally[kLate] + tally[kWrongTokens];
}

// Statuses that a system may return while its parts are killed.
bool IsRefusal(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

// Outcomes of all requests, by mode. Thread-safe.
class Record {
 public:
  void Refused(const std::string& mode) {
    const std::lock_guard<std::mutex> lock(mu_);
    ++by_mode_[mode][kRefusals];
  }

  void Ended(const Plan& plan, const Outcome& outcome, bool right,
             absl::Duration overdue) {
    const std::lock_guard<std::mutex> lock(mu_);
    Tally& tally = by_mode_[plan.mode];
    const absl::Status& status = outcome.status;
    const int64_t bad_before = Bad(tally);
    tally[kLate] += overdue > kSlack;
    tally[kWrongTokens] += !right;
    if (status.ok()) {
      ++tally[kWhole];
      tally[kTokensCompared] += static_cast<int64_t>(outcome.tokens.size());
    } else if (plan.fate == Fate::kCancel && absl::IsCancelled(status)) {
      ++tally[kCancelled];
    } else if (plan.fate == Fate::kDeadline &&
               (absl::IsDeadlineExceeded(status) || IsRefusal(status))) {
      ++tally[kOutOfTime];
    } else {
      ++tally[kUnexpected];
    }
    if (Bad(tally) == bad_before || !first_problem_.empty()) return;
    first_problem_ =
        absl::StrCat(absl::FormatTime(absl::Now()), ", ", plan.mode, ", ",
                     kFates[static_cast<int>(plan.fate)], ", ",
                     absl::FormatDuration(overdue),
                     " after it was due: ", right ? "" : "other tokens; ",
                     overdue > kSlack ? "late; " : "", status.ToString());
  }

  Json Report() const {
    const std::lock_guard<std::mutex> lock(mu_);
    Json report;
    int64_t bad = 0;
    for (const auto& [mode, tally] : by_mode_) {
      for (size_t i = 0; i < tally.size(); ++i) {
        report["modes"][mode][kFigures[i]] = tally[i];
      }
      bad += Bad(tally);
    }
    report["first_problem"] = first_problem_;
    report["bad"] = bad;
    return report;
  }

 private:
  mutable std::mutex mu_;
  std::map<std::string, Tally> by_mode_;
  std::string first_problem_;
};

Plan MakePlan(const SoakOptions& options, size_t works, int number) {
  std::mt19937_64 random(options.seed * 7'919 + number);
  Plan plan;
  plan.work = random() % works;
  plan.mode = options.modes[random() % options.modes.size()];
  // Every third request uses a shared scope.
  const size_t scope = random() % (3 * kScopes);
  if (scope < kScopes) plan.scope = absl::StrCat("soak-", scope);
  const int least = std::min<int>(kMinTokens, options.max_tokens);
  plan.max_tokens =
      least + static_cast<int>(random() % (options.max_tokens - least + 1));
  plan.stop_after = 1 + random() % plan.max_tokens;
  const size_t draw = random() % 10;
  if (draw >= 8) {
    plan.fate = Fate::kDeadline;
    plan.time = absl::Milliseconds(
        static_cast<int64_t>(1 + random() % kLongestHurryMs));
  } else if (draw >= 6) {
    plan.fate = Fate::kCancel;
  }
  return plan;
}

// `whole`: the reference output, at least as long as any plan's.
bool IsRight(const Outcome& outcome, const std::vector<TokenId>& whole,
             int max_tokens) {
  const std::vector<TokenId>& got = outcome.tokens;
  const size_t want = std::min<size_t>(whole.size(), max_tokens);
  return (outcome.status.ok() ? got.size() == want : got.size() <= want) &&
         std::equal(got.begin(), got.end(), whole.begin());
}

// The same constraint in a spelling that few requests have had before, so that
// it is compiled anew.
void Respell(size_t spaces, v1::Constraint& constraint) {
  if (constraint.has_json_schema()) {
    constraint.mutable_json_schema()->append(spaces, ' ');
  } else if (constraint.has_grammar()) {
    constraint.mutable_grammar()->append(spaces, '\n');
  }
}

// Retries after a refusal, as a client does.
void Drive(const testing::WireClient& client, Work work, const Plan& plan,
           const std::vector<TokenId>& whole, Record& record) {
  work.cache_scope = plan.scope;
  Respell(plan.stop_after, work.constraint);
  const absl::Time deadline = MonotonicNow() + plan.time;
  while (true) {
    absl::Time due = deadline;
    const Outcome outcome = Run(
        client, work, plan.mode, plan.max_tokens, deadline, [&](size_t tokens) {
          if (plan.fate != Fate::kCancel || tokens < plan.stop_after) {
            return true;
          }
          due = std::min(due, MonotonicNow());
          return false;
        });
    const bool right = IsRight(outcome, whole, plan.max_tokens);
    if (!right || !IsRefusal(outcome.status) || MonotonicNow() >= deadline) {
      record.Ended(plan, outcome, right, MonotonicNow() - due);
      return;
    }
    record.Refused(plan.mode);
    absl::SleepFor(absl::Milliseconds(50));
  }
}

}  // namespace

absl::StatusOr<Json> RunChaos(const SoakOptions& options,
                              const ChaosOptions& chaos) {
  if (options.modes.empty() || chaos.requests == 0) {
    return absl::InvalidArgumentError("no mode, or no request");
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Setup setup, Prepare(options, kReferences));
  std::fprintf(stderr, "references complete\n");

  Record record;
  std::atomic<int> ended{0};
  const int tenth = std::max(1, chaos.requests / 10);
  const auto go_on = [&](int number) {
    return number < chaos.requests ||
           (!chaos.until.empty() && !std::filesystem::exists(chaos.until));
  };
  const absl::Time start = MonotonicNow();
  WhileTrue(go_on, chaos.concurrency, [&](int number) {
    const Plan plan = MakePlan(options, setup.works.size(), number);
    Drive(*setup.client, setup.works[plan.work], plan,
          setup.references[plan.work], record);
    const int now = ++ended;
    if (now % tenth == 0 && now <= chaos.requests)
      std::fprintf(stderr, "%d requests\n", now);
    absl::SleepFor(chaos.pause);
  });
  Json report = record.Report();
  report["requests"] = ended.load();
  report["seconds"] = absl::ToDoubleSeconds(MonotonicNow() - start);
  return report;
}

std::string ChaosTable(const Json& report) {
  std::string table = absl::StrFormat("%-14s", "mode");
  for (const char* column : kFigures) {
    absl::StrAppendFormat(&table, " %15s", column);
  }
  table += "\n";
  for (const auto& [mode, tally] : report.at("modes").items()) {
    absl::StrAppendFormat(&table, "%-14s", mode);
    for (const char* column : kFigures) {
      absl::StrAppendFormat(&table, " %15d", tally.at(column).get<int64_t>());
    }
    table += "\n";
  }
  absl::StrAppendFormat(&table, "%d requests in %.0f s\n",
                        report.at("requests").get<int64_t>(),
                        report.at("seconds").get<double>());
  const std::string problem = report.at("first_problem");
  if (!problem.empty()) absl::StrAppend(&table, "BAD: ", problem, "\n");
  return table;
}

}  // namespace foretoken::soak
