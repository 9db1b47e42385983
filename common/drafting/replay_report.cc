#include "common/drafting/replay_report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"

namespace foretoken {
namespace {

double Ratio(double sum, int64_t count) {
  return count == 0 ? 0.0 : sum / static_cast<double>(count);
}

// Four decimals; further digits would be noise in the JSON.
double Rounded(double value) { return std::round(value * 1e4) / 1e4; }

double ZeroAcceptShare(const ReplaySetResult& set) {
  return Ratio(static_cast<double>(set.rounds_without_accept), set.all.rounds);
}

Json CategoryJson(const ReplayCounts& counts) {
  return {{"turns", counts.turns},
          {"tokens", counts.tokens},
          {"rounds", counts.rounds},
          {"accept_length", counts.accept_length()},
          {"rounds_by_length", counts.rounds_by_length}};
}

Json SetJson(const ReplaySetResult& set) {
  Json categories = Json::object();
  for (const auto& [name, counts] : set.categories) {
    categories[name] = CategoryJson(counts);
  }
  return {{"file", set.file},
          {"turns", set.all.turns},
          {"prompt_tokens", set.prompt_tokens},
          {"output_tokens", set.output_tokens},
          {"tokens", set.all.tokens},
          {"rounds", set.all.rounds},
          {"accept_length", set.all.accept_length()},
          {"accept_length_without_loops", set.without_loops.accept_length()},
          {"mean_tree_nodes", set.mean_tree_nodes()},
          {"zero_accept_share", ZeroAcceptShare(set)},
          {"rounds_by_length", set.all.rounds_by_length},
          {"categories", std::move(categories)}};
}

}  // namespace

ReplayCostSummary::ReplayCostSummary(const ReplayCosts& costs)
    : draft_us_p50(Percentile(costs.draft_cpu_us, 0.50)),
      draft_us_p99(Percentile(costs.draft_cpu_us, 0.99)),
      draft_wall_us_p50(Percentile(costs.draft_wall_us, 0.50)),
      draft_wall_us_p99(Percentile(costs.draft_wall_us, 0.99)),
      insert_us_per_token(Ratio(costs.insert_cpu_us, costs.inserted_tokens)),
      insert_wall_us_per_token(
          Ratio(costs.insert_wall_us, costs.inserted_tokens)),
      prompt_us_per_token(Ratio(costs.prompt_cpu_us, costs.prompt_tokens)),
      request_bytes_per_token(Ratio(costs.request_bytes, costs.request_tokens)),
      history_bytes_per_token(
          Ratio(costs.history_bytes, costs.history_tokens)) {}

Json ReplayJson(const std::string& mode, int max_tree_nodes,
                const std::vector<ReplaySetResult>& sets,
                const ReplayCostSummary& costs) {
  Json list = Json::array();
  for (const ReplaySetResult& set : sets) list.push_back(SetJson(set));
  return {{"mode", mode},
          {"max_tree_nodes", max_tree_nodes},
          {"sets", std::move(list)},
          {"draft_us",
           {{"p50", Rounded(costs.draft_us_p50)},
            {"p99", Rounded(costs.draft_us_p99)}}},
          {"draft_wall_us",
           {{"p50", Rounded(costs.draft_wall_us_p50)},
            {"p99", Rounded(costs.draft_wall_us_p99)}}},
          {"insert_us_per_token", Rounded(costs.insert_us_per_token)},
          {"insert_wall_us_per_token", Rounded(costs.insert_wall_us_per_token)},
          {"prompt_us_per_token", Rounded(costs.prompt_us_per_token)},
          {"request_bytes_per_token", Rounded(costs.request_bytes_per_token)},
          {"history_bytes_per_token", Rounded(costs.history_bytes_per_token)}};
}

std::string ReplayTable(const std::string& mode, int max_tree_nodes,
                        const std::vector<ReplaySetResult>& sets,
                        const ReplayCostSummary& costs) {
  std::string text = absl::StrCat("mode ", mode, ", at most ", max_tree_nodes,
                                  " nodes a round\n");
  for (const ReplaySetResult& set : sets) {
    absl::StrAppendFormat(&text,
                          "\n%s\n"
                          "  turns %d, prompt tokens %d, output tokens %d\n"
                          "  %-32s %6s %8s %8s %7s\n",
                          set.file, set.all.turns, set.prompt_tokens,
                          set.output_tokens, "", "turns", "tokens", "rounds",
                          "accept");
    const auto line = [&](const std::string& name, const ReplayCounts& counts) {
      absl::StrAppendFormat(&text, "  %-32s %6d %8d %8d %7.3f\n", name,
                            counts.turns, counts.tokens, counts.rounds,
                            counts.accept_length());
    };
    for (const auto& [name, counts] : set.categories) line(name, counts);
    line("ALL", set.all);
    line("ALL without loops", set.without_loops);
    absl::StrAppendFormat(
        &text,
        "  %.1f nodes a round, %.1f %% of rounds accept no draft token\n",
        set.mean_tree_nodes(), 100 * ZeroAcceptShare(set));
  }
  absl::StrAppendFormat(
      &text,
      "\ndraft us, CPU: p50 %.2f, p99 %.2f (wall %.2f, %.2f)\n"
      "insert us/token, CPU: %.3f (wall %.3f); prompt %.3f\n"
      "bytes/token: request %.1f, history %.1f\n",
      costs.draft_us_p50, costs.draft_us_p99, costs.draft_wall_us_p50,
      costs.draft_wall_us_p99, costs.insert_us_per_token,
      costs.insert_wall_us_per_token, costs.prompt_us_per_token,
      costs.request_bytes_per_token, costs.history_bytes_per_token);
  return text;
}

}  // namespace foretoken
