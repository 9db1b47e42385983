#include "tools/cli/mode_bench/mode_bench_report.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/base/json.h"
#include "tools/cli/mode_bench/statistics.h"

namespace foretoken::mode_bench {
namespace {

Json Number(double value) {
  // JSON has no NaN; null means unknown.
  return std::isfinite(value) ? Json(value) : Json();
}

// The three fields `name`, `prefix`_low and `prefix`_high.
void AddInterval(const std::string& name, const std::string& prefix,
                 const Interval& interval, Json& row) {
  row[name] = Number(interval.mean);
  row[prefix + "_low"] = Number(interval.low);
  row[prefix + "_high"] = Number(interval.high);
}

Json PercentilesJson(const std::vector<double>& values) {
  const Percentiles percentiles = PercentilesOf(values);
  return {{"p50", Number(percentiles.p50)},
          {"p95", Number(percentiles.p95)},
          {"p99", Number(percentiles.p99)}};
}

Json DraftersJson(const CellResult& cell) {
  Json drafters = Json::object();
  for (const auto& [id, counts] : cell.by_drafter) {
    drafters[DrafterName(id)] = {{"drafted", counts.drafted},
                                 {"accepted", counts.accepted},
                                 {"rounds", counts.rounds},
                                 {"degraded_rounds", counts.degraded},
                                 {"shortened_drafts", counts.shortened}};
  }
  return drafters;
}

Json ConcurrencyJson(const CellResult& cell) {
  return cell.concurrency > 0 ? Json(cell.concurrency) : Json();
}

Interval RatioTo(const CellResult& baseline, const CellResult& cell) {
  // Exactly 1 by definition; an interval computed from the cell itself would
  // have no width either.
  if (cell.baseline) return {1, 1, 1};
  return GeometricInterval(cell.LogRatios(baseline));
}

Interval DecodeRatioTo(const CellResult& baseline, const CellResult& cell) {
  if (cell.baseline) return {1, 1, 1};
  return GeometricInterval(cell.LogDecodeRatios(baseline));
}

Json PhasesJson(const CellResult& cell) {
  const auto of_round = [&](double sum_ms) {
    return cell.rounds == 0 ? Json()
                            : Json(sum_ms / static_cast<double>(cell.rounds));
  };
  // Server and client have clocks of their own.
  // Not negative: the three times come from two clocks, so their difference may
  // be off by a little.
  const double other =
      std::max(0.0, cell.decode_ms - cell.draft_ms - cell.verify_ms);
  return {{"draft", of_round(cell.draft_ms)},
          {"verify", of_round(cell.verify_ms)},
          {"other", of_round(other)}};
}

Json RunJson(const CellResult& cell, const CellResult& baseline) {
  Json row = {{"mode", cell.mode},
              {"concurrency", ConcurrencyJson(cell)},
              {"baseline", cell.baseline},
              {"pairs", cell.tokens_per_s.size()},
              {"requests", cell.requests},
              {"refused", cell.refused},
              {"tokens", cell.tokens},
              {"tokens_per_s_by_pair", cell.tokens_per_s},
              {"accept_length",
               cell.rounds == 0 ? 1.0
                                : 1.0 + static_cast<double>(cell.accepted) /
                                            static_cast<double>(cell.rounds)},
              {"by_drafter", DraftersJson(cell)},
              {"shortened_drafts", cell.shortened_drafts()},
              {"phases_ms", PhasesJson(cell)},
              {"ttft_ms", PercentilesJson(cell.first_token_ms)},
              {"itl_ms", PercentilesJson(cell.token_gap_ms)},
              {"latency_ms", PercentilesJson(cell.latency_ms)}};
  AddInterval("tokens_per_s", "tokens_per_s",
              GeometricInterval(cell.LogRates()), row);
  AddInterval("ratio_to_off", "ratio", RatioTo(baseline, cell), row);
  AddInterval("decode_tokens_per_s", "decode_tokens_per_s",
              GeometricInterval(cell.LogDecodeRates()), row);
  AddInterval("decode_ratio_to_off", "decode_ratio",
              DecodeRatioTo(baseline, cell), row);
  return row;
}

// Mode auto may shorten or skip a draft as it sees fit; the other modes are
// named for what they draft.
bool PromisesWholeDrafts(const CellResult& cell) { return cell.mode != "auto"; }

// The cells of one concurrency that are reported.
class Group {
 public:
  Group(absl::Span<const CellResult> cells,
        const std::set<std::string>& left_out) {
    for (const CellResult& cell : cells) {
      // The baseline stays known even if it is left out, since all ratios refer
      // to it.
      if (left_out.count(cell.mode) == 0) cells_.push_back(&cell);
      if (cell.baseline) baseline_ = &cell;
    }
  }

  absl::Span<const CellResult* const> cells() const { return cells_; }
  const CellResult& baseline() const { return *baseline_; }

  // Nothing if there is nothing to compare the mode with.
  std::optional<Json> BestSingle(const CellResult& own) const {
    std::vector<const CellResult*> others;
    std::vector<std::vector<double>> rates;
    for (const CellResult* const cell : cells_) {
      // The baseline given twice measures noise; the repeated one must not
      // become the best other mode.
      const bool repeated = cell->mode == baseline_->mode && !cell->baseline;
      if (cell->mode == own.mode || repeated) continue;
      others.push_back(cell);
      rates.push_back(cell->LogRates());
    }
    const auto compared = CompareWithBest(own.LogRates(), rates);
    if (!compared.has_value()) return std::nullopt;
    Json row = {{"mode", own.mode},
                {"concurrency", ConcurrencyJson(own)},
                {"best", others[compared->best]->mode}};
    AddInterval("ratio_to_best", "ratio", compared->ratio, row);
    return row;
  }

 private:
  std::vector<const CellResult*> cells_;
  const CellResult* baseline_ = nullptr;
};

std::vector<Group> Groups(const ModeBenchResult& result, size_t modes) {
  const std::set<std::string> left_out = ModesLeftOut(result);
  std::vector<Group> groups;
  // Cells are in order of concurrency, then of modes, so a group is a run of
  // `modes` cells.
  for (size_t at = 0; at < result.cells.size(); at += modes) {
    groups.emplace_back(absl::MakeConstSpan(result.cells).subspan(at, modes),
                        left_out);
  }
  return groups;
}

Json LeftOutJson(const ModeBenchResult& result) {
  Json left_out = Json::array();
  for (const CellResult& cell : result.cells) {
    const int64_t shortened = cell.shortened_drafts();
    if (shortened == 0 || !PromisesWholeDrafts(cell)) continue;
    left_out.push_back(
        {{"mode", cell.mode},
         {"concurrency", ConcurrencyJson(cell)},
         {"shortened_drafts", shortened},
         {"reason", absl::StrCat(shortened,
                                 " of its drafts came late or were cut off: "
                                 "its figures would not be those of ",
                                 cell.mode)}});
  }
  return left_out;
}

Json PooledJson(const std::vector<Group>& groups) {
  Json pooled = Json::array();
  // All groups leave out the same modes, so index `mode` means the same one in
  // each.
  for (size_t mode = 0; mode < groups.front().cells().size(); ++mode) {
    const CellResult& first = *groups.front().cells()[mode];
    if (first.baseline) continue;
    std::vector<std::vector<double>> logs;
    for (const Group& group : groups) {
      logs.push_back(group.cells()[mode]->LogRatios(group.baseline()));
    }
    Json row = {{"mode", first.mode}};
    AddInterval("ratio_to_off", "ratio", PooledRatio(logs), row);
    pooled.push_back(std::move(row));
  }
  return pooled;
}

Json MethodJson(const ModeBenchOptions& options, size_t prompts,
                const ModeBenchResult& result) {
  Json method = {
      {"loop", options.open_loop() ? "open" : "closed"},
      {"pairs", options.pairs.pairs},
      {"max_pairs", options.pairs.most()},
      {"until", options.pairs.until},
      {"interval", "95 % by Student's t over pairs; ratios by logarithm"},
      {"prompts", prompts},
      {"max_tokens", options.max_tokens},
      {"temperature", options.temperature},
      {"seed", options.pairs.seed},
      {"numerics", result.numerics_fingerprint},
      {"tokens_compared", result.tokens_compared}};
  Json requests = Json::array();
  if (options.open_loop()) {
    method["speed"] = options.speed;
    requests.push_back(options.RequestsOf(0));
  } else {
    for (const int clients : options.concurrency) {
      requests.push_back(options.RequestsOf(clients));
    }
  }
  method["requests_per_slice"] = std::move(requests);
  return method;
}

// --- Markdown ----------------------------------------------------------------

std::string Shown(const Json& value, int digits) {
  // Unknown values are null, see Number.
  return value.is_number()
             ? absl::StrFormat("%.*f", digits, value.get<double>())
             : "?";
}

// "1.52 (1.49 to 1.55)"
std::string ShownInterval(const Json& row, const std::string& name,
                          const std::string& prefix, int digits) {
  return absl::StrCat(Shown(row[name], digits), " (",
                      Shown(row[prefix + "_low"], digits), " to ",
                      Shown(row[prefix + "_high"], digits), ")");
}

std::string ShownPercentiles(const Json& percentiles) {
  return absl::StrCat(Shown(percentiles["p50"], 1), " / ",
                      Shown(percentiles["p95"], 1), " / ",
                      Shown(percentiles["p99"], 1));
}

std::string ShownConcurrency(const Json& row) {
  const Json& concurrency = row["concurrency"];
  return concurrency.is_null() ? "trace" : absl::StrCat(concurrency.get<int>());
}

std::string ShownPhases(const Json& phases) {
  return absl::StrCat(Shown(phases["draft"], 1), " / ",
                      Shown(phases["verify"], 1), " / ",
                      Shown(phases["other"], 1));
}

std::string ShownMachine(const Json& machine) {
  if (machine.is_null()) return "";
  return absl::StrFormat(
      "Machine: %d threads read %.1f GB/s and multiply and add %.0f billion "
      "times a second in int8, %.0f in fp32.\n\n",
      machine["threads"].get<int>(), machine["read_gb_s"].get<double>(),
      machine["int8_multiply_adds_per_s"].get<double>() * 1e-9,
      machine["fp32_multiply_adds_per_s"].get<double>() * 1e-9);
}

std::string ShownRun(const Json& run) {
  const bool baseline = run["baseline"].get<bool>();
  const std::string ratio =
      baseline ? "1" : ShownInterval(run, "ratio_to_off", "ratio", 3);
  const std::string decode_ratio =
      baseline ? "1"
               : ShownInterval(run, "decode_ratio_to_off", "decode_ratio", 3);
  return absl::StrCat(
      "| ", ShownConcurrency(run), " | ", run["mode"].get<std::string>(), " | ",
      ShownInterval(run, "tokens_per_s", "tokens_per_s", 1), " | ", ratio,
      " | ", run["pairs"].get<int64_t>(), " | ", Shown(run["accept_length"], 2),
      " | ",
      ShownInterval(run, "decode_tokens_per_s", "decode_tokens_per_s", 1),
      " | ", decode_ratio, " | ", ShownPhases(run["phases_ms"]), " | ",
      run["shortened_drafts"].get<int64_t>(), " | ",
      ShownPercentiles(run["ttft_ms"]), " | ", ShownPercentiles(run["itl_ms"]),
      " | ", ShownPercentiles(run["latency_ms"]), " | ",
      run["refused"].get<int64_t>(), " |\n");
}

}  // namespace

std::set<std::string> ModesLeftOut(const ModeBenchResult& result) {
  std::set<std::string> modes;
  for (const CellResult& cell : result.cells) {
    if (PromisesWholeDrafts(cell) && cell.shortened_drafts() > 0) {
      modes.insert(cell.mode);
    }
  }
  return modes;
}

Json ModeBenchJson(const ModeBenchOptions& options, size_t prompts,
                   const ModeBenchResult& result, Json machine) {
  const std::vector<Group> groups = Groups(result, options.modes.size());
  Json runs = Json::array();
  Json best = Json::array();
  for (const Group& group : groups) {
    // Cells of modes that are left out are not in the group; LeftOutJson says
    // why.
    for (const CellResult* const cell : group.cells()) {
      runs.push_back(RunJson(*cell, group.baseline()));
      if (cell->mode != "auto") continue;
      std::optional<Json> row = group.BestSingle(*cell);
      if (row.has_value()) best.push_back(*std::move(row));
    }
  }
  return {{"machine", std::move(machine)},
          {"runs", std::move(runs)},
          {"pooled", PooledJson(groups)},
          {"best_single", std::move(best)},
          {"left_out", LeftOutJson(result)},
          {"method", MethodJson(options, prompts, result)}};
}

std::string ModeBenchMarkdown(const Json& report) {
  std::string text = absl::StrCat(
      ShownMachine(report["machine"]),
      "| at once | mode | tokens/s | of off | pairs | accept length | "
      "decoding, "
      "tokens/s | decoding, of off | draft / verify / other of a round, ms | "
      "drafts shortened | first token, ms | between tokens, ms | whole "
      "request, "
      "ms | refused |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Json& run : report["runs"]) absl::StrAppend(&text, ShownRun(run));
  absl::StrAppend(&text,
                  "\nIntervals are 95 % by Student's t over pairs; times are "
                  "p50 / p95 / p99.\n");
  for (const Json& row : report["left_out"]) {
    absl::StrAppend(&text, "\nLeft out: ", row["mode"].get<std::string>(),
                    ", at once ", ShownConcurrency(row), ": ",
                    row["reason"].get<std::string>(), ".\n");
  }
  if (!report["pooled"].empty()) {
    absl::StrAppend(&text, "\n| all cells | of off |\n|---|---|\n");
  }
  for (const Json& row : report["pooled"]) {
    absl::StrAppend(&text, "| ", row["mode"].get<std::string>(), " | ",
                    ShownInterval(row, "ratio_to_off", "ratio", 3), " |\n");
  }
  if (!report["best_single"].empty()) {
    absl::StrAppend(&text,
                    "\n| at once | mode | best other mode, by even pairs | of "
                    "it, by odd pairs |\n|---|---|---|---|\n");
  }
  for (const Json& row : report["best_single"]) {
    absl::StrAppend(&text, "| ", ShownConcurrency(row), " | ",
                    row["mode"].get<std::string>(), " | ",
                    row["best"].get<std::string>(), " | ",
                    ShownInterval(row, "ratio_to_best", "ratio", 3), " |\n");
  }
  return text;
}

}  // namespace foretoken::mode_bench
