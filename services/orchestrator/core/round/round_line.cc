#include "services/orchestrator/core/round/round_line.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace foretoken::orchestrator {
namespace {

std::string Ms(absl::Duration duration) {
  return absl::StrFormat("%.2fms", absl::ToDoubleMilliseconds(duration));
}

std::string OrNone(std::string text) { return text.empty() ? "-" : text; }

}  // namespace

std::string RoundLine(int64_t number, const RoundReport& round) {
  const auto source = [](std::string* out, const SourceReport& report) {
    absl::StrAppend(out, DrafterName(report.id), "=", report.nodes, "/",
                    OutcomeName(report.outcome), "/", Ms(report.latency));
  };
  const auto owner = [&round](std::string* out, int32_t index) {
    absl::StrAppend(out, DrafterName(round.sources[index].id));
  };
  return absl::StrCat(
      "round ", number, " length ", round.length, " nodes ", round.draft_nodes,
      " probes ", round.probe_rows, " from ",
      OrNone(absl::StrJoin(round.sources, ",", source)), " accepted ",
      round.accepted, " path ",
      OrNone(absl::StrJoin(round.path_drafters, ",", owner)), " draft ",
      Ms(round.draft_time), " verify ", Ms(round.verify_time), " pass ",
      Ms(round.stats.pass_time), " rows ", round.stats.pass_rows, " sessions ",
      round.stats.pass_sessions);
}

}  // namespace foretoken::orchestrator
