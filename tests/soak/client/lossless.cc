#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "tests/soak/client/soak.h"

namespace foretoken::soak {
namespace {

struct ModeTally {
  int64_t requests = 0;
  int64_t tokens = 0;
  int64_t sampled_tokens = 0;  // of them at temperature 0.8
  int64_t differing_requests = 0;
  int64_t failed_requests = 0;
  int64_t rounds = 0;
  int64_t accepted = 0;
  double decoded = 0;  // tokens after the first, and their seconds
  double seconds = 0;
};

void Count(const Work& work, const Outcome& outcome,
           const std::vector<TokenId>& reference, ModeTally& tally) {
  const auto tokens = static_cast<int64_t>(outcome.tokens.size());
  ++tally.requests;
  tally.tokens += tokens;
  if (work.temperature > 0) tally.sampled_tokens += tokens;
  tally.failed_requests += !outcome.status.ok();
  tally.differing_requests +=
      outcome.status.ok() && outcome.tokens != reference;
  const v1::GenerateResult& result = outcome.result;
  tally.rounds += result.speculation().rounds();
  tally.accepted += result.speculation().accepted_tokens();
  const double speed = result.timing().decode_tokens_per_s();
  if (speed > 0 && tokens > 1) {
    tally.decoded += static_cast<double>(tokens - 1);
    tally.seconds += static_cast<double>(tokens - 1) / speed;
  }
}

Json ToJson(const ModeTally& tally) {
  return Json{{"requests", tally.requests},
              {"tokens_compared", tally.tokens},
              {"sampled_tokens", tally.sampled_tokens},
              {"differing_requests", tally.differing_requests},
              {"failed_requests", tally.failed_requests},
              {"decode_tokens_per_s",
               tally.seconds > 0 ? tally.decoded / tally.seconds : 0.0},
              {"accept_length",
               tally.rounds == 0
                   ? 1.0
                   : 1.0 + static_cast<double>(tally.accepted) / tally.rounds}};
}

// Minimum tokens per mode, among which some draft must be accepted.
constexpr int64_t kEnoughTokens = 1000;

// Runs all work in one mode and compares it with the references.
ModeTally RunMode(const Setup& setup, const std::string& mode, int max_tokens,
                  int concurrency) {
  ModeTally tally;
  std::mutex mutex;
  const int count = static_cast<int>(setup.works.size());
  WhileTrue([&](int i) { return i < count; }, concurrency,
            [&](int i) {
              const Outcome outcome =
                  RunWhole(*setup.client, setup.works[i], mode, max_tokens);
              const std::lock_guard<std::mutex> lock(mutex);
              Count(setup.works[i], outcome, setup.references[i], tally);
            });
  std::fprintf(stderr, "%s at %d: %lld tokens\n", mode.c_str(), concurrency,
               static_cast<long long>(tally.tokens));
  return tally;
}

// Columns of a bar.
constexpr int kBarWidth = 20;

// A bar for `share`, 0..1, in eighths of a column, padded to kBarWidth.
std::string Bar(double share) {
  const int eighths = static_cast<int>(std::lround(share * kBarWidth * 8));
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "\u2588";
  constexpr const char* kParts[] = {"",       "\u258f", "\u258e", "\u258d",
                                    "\u258c", "\u258b", "\u258a", "\u2589"};
  bar += kParts[eighths % 8];
  const int columns = eighths / 8 + (eighths % 8 > 0);
  return bar + std::string(static_cast<size_t>(kBarWidth - columns), ' ');
}

// Comparing `off` with itself only shows that it is deterministic.
bool Drafts(const std::string& mode) { return mode != "off"; }

}  // namespace

absl::StatusOr<Json> RunLossless(const SoakOptions& options, int64_t tokens,
                                 const std::vector<int>& concurrencies) {
  const int64_t drafting =
      std::count_if(options.modes.begin(), options.modes.end(), Drafts);
  if (drafting == 0) return absl::InvalidArgumentError("no mode that drafts");
  // Some outputs end early, so prepare more prompts than strictly needed.
  const int64_t a_prompt = drafting *
                           static_cast<int64_t>(concurrencies.size()) *
                           options.max_tokens;
  const int count =
      static_cast<int>(std::max<int64_t>(2, 5 * tokens / (4 * a_prompt)));
  FORETOKEN_ASSIGN_OR_RETURN(const Setup setup, Prepare(options, count));

  Json report;
  int64_t compared = 0, sampled = 0, bad = 0;
  std::map<std::string, int64_t> accepted;  // by mode
  for (const int concurrency : concurrencies) {
    for (const std::string& mode : options.modes) {
      const ModeTally tally =
          RunMode(setup, mode, options.max_tokens, concurrency);
      bad += tally.differing_requests + tally.failed_requests;
      if (Drafts(mode)) {
        compared += tally.tokens;
        sampled += tally.sampled_tokens;
        accepted[mode] += tally.accepted;
      }
      Json row = ToJson(tally);
      row["mode"] = mode;
      row["concurrency"] = concurrency;
      report["rows"].push_back(std::move(row));
    }
  }
  // A mode whose drafts are never accepted proves nothing.
  report["never_right"] = Json::array();
  for (const auto& [mode, right] : accepted) {
    if (right > 0 || compared < kEnoughTokens * drafting) continue;
    report["never_right"].push_back(mode);
    ++bad;
  }
  report["bad"] = bad;
  report["tokens_compared"] = compared;
  report["sampled_tokens"] = sampled;
  if (compared < tokens) {
    return absl::OutOfRangeError(
        absl::StrCat("only ", compared, " of ", tokens,
                     " tokens were compared: give more text"));
  }
  return report;
}

std::string LosslessTable(const Json& report) {
  std::string table = absl::StrFormat(
      "%-14s %2s %8s %8s %-*s %9s  %s\n", "mode", "at", "accepted", "tok/s",
      kBarWidth, "", "speed-up", "tokens equal to off");
  std::map<int, double> base;  // speed of `off` by concurrency
  double fastest = 0;
  for (const Json& row : report.at("rows")) {
    fastest = std::max(fastest, row.at("decode_tokens_per_s").get<double>());
  }
  for (const Json& row : report.at("rows")) {
    const double speed = row.at("decode_tokens_per_s");
    const int concurrency = row.at("concurrency");
    if (row.at("mode") == "off") base[concurrency] = speed;
    const int64_t bad = row.at("differing_requests").get<int64_t>() +
                        row.at("failed_requests").get<int64_t>();
    absl::StrAppendFormat(
        &table, "%-14s %2d %8.2f %8.0f %s %9s  %s\n",
        row.at("mode").get<std::string>(), concurrency,
        row.at("accept_length").get<double>(), speed,
        Bar(fastest > 0 ? speed / fastest : 0),
        base.count(concurrency) == 0 || base[concurrency] == 0
            ? "-"
            : absl::StrFormat("%.2fx", speed / base[concurrency]),
        bad == 0
            ? absl::StrCat("all ", row.at("tokens_compared").get<int64_t>())
            : absl::StrCat("NO: ", bad, " of ",
                           row.at("requests").get<int64_t>(), " requests"));
  }
  absl::StrAppendFormat(&table,
                        "%d tokens beside those of off, %d of them at "
                        "temperature 0.8\n",
                        report.at("tokens_compared").get<int64_t>(),
                        report.at("sampled_tokens").get<int64_t>());
  for (const Json& mode : report.at("never_right")) {
    absl::StrAppend(&table, "BAD: no draft of ", mode.get<std::string>(),
                    " was ever right\n");
  }
  return table;
}

}  // namespace foretoken::soak
