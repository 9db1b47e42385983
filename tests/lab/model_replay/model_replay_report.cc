#include "tests/lab/model_replay/model_replay_report.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"

namespace foretoken::model_replay {
namespace {

double Ratio(double a, double b) { return b > 0 ? a / b : 0.0; }

// Mean over questions of tokens per second.
class MeanSpeed {
 public:
  void Add(const std::string& question, double tokens, double seconds) {
    Sum& sum = sums_[question];
    sum.tokens += tokens;
    sum.seconds += seconds;
  }
  double Mean() const {
    double speeds = 0;
    for (const auto& [question, sum] : sums_) {
      speeds += Ratio(sum.tokens, sum.seconds);
    }
    return Ratio(speeds, static_cast<double>(sums_.size()));
  }

 private:
  struct Sum {
    double tokens = 0;
    double seconds = 0;
  };
  std::map<std::string, Sum> sums_;
};

Json SummaryJson(const ReplaySummary& summary, bool whole_outputs) {
  Json json = {{"turns", summary.turns},
               {"tokens", summary.tokens},
               {"rounds", summary.rounds},
               {"accept_length", summary.accept_length},
               {"mean_rows", summary.mean_rows},
               {"plain_tok_s", summary.plain_tok_s},
               {"speculative_tok_s", summary.speculative_tok_s},
               {"speedup", summary.speedup},
               {"drafting_share", summary.drafting_share}};
  if (whole_outputs) {
    json["speedup_with_prefill"] = summary.speedup_with_prefill;
    json["spec_bench_speedup"] = summary.spec_bench_speedup;
  }
  return json;
}

std::string Line(const std::string& name, const Json& of) {
  const auto figure = [&](const char* field) -> std::string {
    if (!of.contains(field)) return "-";
    return absl::StrFormat("%.2f", of[field].get<double>());
  };
  return absl::StrFormat(
      "%-16s %5d %7d %7.3f %6.1f %9.2f %9.2f %6.2f %7.1f %6s %6s\n", name,
      of["turns"].get<int64_t>(), of["tokens"].get<int64_t>(),
      of["accept_length"].get<double>(), of["mean_rows"].get<double>(),
      of["plain_tok_s"].get<double>(), of["speculative_tok_s"].get<double>(),
      of["speedup"].get<double>(), of["drafting_share"].get<double>() * 100.0,
      figure("speedup_with_prefill"), figure("spec_bench_speedup"));
}

}  // namespace

ReplaySummary::ReplaySummary(absl::Span<const TurnResult* const> of)
    : turns(static_cast<int64_t>(of.size())) {
  int64_t nodes = 0, plain_tokens = 0;
  double prefill = 0, plain = 0, speculative = 0, drafting = 0;
  MeanSpeed plain_speed, speculative_speed;
  for (const TurnResult* turn : of) {
    tokens += turn->tokens;
    plain_tokens += turn->plain_tokens;
    rounds += turn->rounds;
    nodes += turn->nodes;
    drafting += turn->drafting;
    prefill += turn->prefill;
    plain += turn->plain;
    speculative += turn->speculative;
    // Spec-Bench counts the token from prefill too.
    plain_speed.Add(turn->id, static_cast<double>(turn->plain_tokens) + 1.0,
                    turn->prefill + turn->plain);
    speculative_speed.Add(turn->id, static_cast<double>(turn->tokens) + 1.0,
                          turn->prefill + turn->speculative);
  }
  if (rounds > 0) {
    accept_length = static_cast<double>(tokens) / static_cast<double>(rounds);
    mean_rows = 1.0 + static_cast<double>(nodes) / static_cast<double>(rounds);
  }
  plain_tok_s = Ratio(static_cast<double>(plain_tokens), plain);
  speculative_tok_s = Ratio(static_cast<double>(tokens), speculative);
  speedup = Ratio(speculative_tok_s, plain_tok_s);
  drafting_share = Ratio(drafting, speculative);
  speedup_with_prefill = Ratio(prefill + plain, prefill + speculative);
  spec_bench_speedup = Ratio(speculative_speed.Mean(), plain_speed.Mean());
}

Json ModelReplayJson(const ReplaySetup& setup,
                     absl::Span<const TurnResult> turns) {
  std::vector<const TurnResult*> all;
  std::map<std::string, std::vector<const TurnResult*>> by_category;
  for (const TurnResult& turn : turns) {
    all.push_back(&turn);
    by_category[turn.category].push_back(&turn);
  }
  Json report = {{"label", kLabel},
                 {"mode", setup.mode},
                 {"state", setup.state},
                 {"shape", setup.shape},
                 {"backend", setup.backend},
                 {"file", setup.file},
                 {"node_price", setup.node_price},
                 {"max_tree_nodes", setup.max_tree_nodes},
                 {"pass_costs", Json::array()},
                 {"all", SummaryJson(ReplaySummary(all), setup.window == 0)},
                 {"categories", Json::object()}};
  for (const auto& [rows, ms] : setup.pass_ms) {
    report["pass_costs"].push_back({{"rows", rows}, {"ms", ms}});
  }
  for (const auto& [name, of] : by_category) {
    report["categories"][name] =
        SummaryJson(ReplaySummary(of), setup.window == 0);
  }
  if (setup.window > 0) {
    report["window"] = setup.window;
    report["window_seed"] = setup.window_seed;
  }
  if (!setup.draft_shape.empty()) {
    report["draft_shape"] = setup.draft_shape;
    report["method"] = setup.method;
    report["turns_left_out"] = setup.turns_left_out;
  }
  return report;
}

std::string ModelReplayTable(const Json& report) {
  const auto text = [&](const char* field) {
    return report[field].get<std::string>();
  };
  std::string table = absl::StrFormat(
      "%s\nmode %s, %s, shape %s, at most %d nodes a round, node price %s\n"
      "backend %s\n%s\n",
      text("label"), text("mode"), text("state"), text("shape"),
      report["max_tree_nodes"].get<int>(), text("node_price"), text("backend"),
      text("file"));
  if (report.contains("draft_shape")) {
    absl::StrAppendFormat(&table,
                          "draft model of shape %s, steps of %s, %d turns left "
                          "out\n",
                          text("draft_shape"), text("method"),
                          report["turns_left_out"].get<int64_t>());
  }
  if (report.contains("window")) {
    absl::StrAppendFormat(&table,
                          "%d tokens of each output, at places of seed %d\n",
                          report["window"].get<int64_t>(),
                          report["window_seed"].get<uint64_t>());
  }
  absl::StrAppend(&table, "a pass by rows, ms:");
  for (const Json& pass : report["pass_costs"]) {
    absl::StrAppendFormat(&table, "  %.0f: %.3f", pass["rows"].get<double>(),
                          pass["ms"].get<double>());
  }
  absl::StrAppendFormat(&table,
                        "\n\n%-16s %5s %7s %7s %6s %19s %6s %7s %6s %6s\n"
                        "%-16s %5s %7s %7s %6s %9s %9s %6s %7s %6s %6s\n",
                        "", "", "", "", "", "tok/s", "speed-", "draft-", "with",
                        "Spec-", "", "turns", "tokens", "accept", "rows",
                        "plain", "spec.", "up", "ing %", "prefl.", "Bench");
  for (const auto& [name, of] : report["categories"].items()) {
    table += Line(name, of);
  }
  table += Line("ALL", report["all"]);
  return table;
}

}  // namespace foretoken::model_replay
