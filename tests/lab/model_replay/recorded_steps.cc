#include "tests/lab/model_replay/recorded_steps.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/drafting/json_rows.h"

namespace foretoken::model_replay {
namespace {

// Limit per turn, far above any recording.
constexpr int64_t kMaxNewTokens = 1 << 20;

absl::StatusOr<std::vector<int64_t>> Counts(const Json& row,
                                            const char* field) {
  const auto it = row.find(field);
  const std::string want =
      absl::StrCat("a list of numbers from 1 to ", kMaxNewTokens);
  if (it == row.end() || !it->is_array()) return WrongField(field, want);
  std::vector<int64_t> counts;
  for (const Json& value : *it) {
    if (!value.is_number_integer() || value < 1 || value > kMaxNewTokens) {
      return WrongField(field, want);
    }
    counts.push_back(value.get<int64_t>());
  }
  return counts;
}

absl::StatusOr<std::vector<TurnSteps>> ReadTurns(const Json& row) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<int64_t> tokens,
                             Counts(row, "new_tokens"));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<int64_t> steps,
                             Counts(row, "decoding_steps"));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths,
                             Counts(row, "accept_lengths"));
  if (tokens.size() != steps.size()) {
    return WrongField("decoding_steps", "as many turns as new_tokens");
  }
  // accept_lengths runs over all turns; cut it by the steps of each.
  std::vector<TurnSteps> turns;
  size_t at = 0;
  for (size_t turn = 0; turn < tokens.size(); ++turn) {
    if (steps[turn] > static_cast<int64_t>(lengths.size() - at)) {
      return WrongField("accept_lengths", "one for every step");
    }
    const auto begin = lengths.begin() + static_cast<ptrdiff_t>(at);
    const auto end = begin + steps[turn];
    if (std::accumulate(begin, end, int64_t{0}) != tokens[turn]) {
      return WrongField(
          "accept_lengths",
          absl::StrCat("a sum of ", tokens[turn], " in turn ", turn));
    }
    turns.emplace_back(begin, end);
    at += static_cast<size_t>(steps[turn]);
  }
  if (at != lengths.size()) {
    return WrongField("accept_lengths", "one for every step");
  }
  return turns;
}

using Runs = std::map<std::string, RecordedRun>;  // by method

absl::Status ReadRow(const Json& row, Runs& runs) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::string method,
                             StringField(row, "method"));
  if (!row.contains("accept_lengths")) return absl::OkStatus();
  FORETOKEN_ASSIGN_OR_RETURN(const std::string id, StringField(row, "id"));
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<TurnSteps> turns, ReadTurns(row));
  RecordedRun& run = runs[method];
  run.method = method;
  if (!run.turns.emplace(id, std::move(turns)).second) {
    return WrongField("id", absl::StrCat("\"", id, "\" once for each method"));
  }
  return absl::OkStatus();
}

absl::Status CheckSteps(const TurnSteps& steps, const DraftSchedule& schedule,
                        int max_tree_nodes) {
  int32_t drafted = schedule.First();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (drafted > max_tree_nodes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "step ", i, " drafts ", drafted, " tokens, more than the ",
          max_tree_nodes, " nodes of a tree"));
    }
    if (steps[i] - 1 > drafted) {
      return absl::InvalidArgumentError(absl::StrCat("step ", i, " accepted ",
                                                     steps[i] - 1,
                                                     " draft tokens, but the "
                                                     "schedule drafts ",
                                                     drafted));
    }
    drafted = schedule.Next(drafted, steps[i] - 1);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RecordedRun> ReadRecordedRun(const std::string& path,
                                            const std::string& method) {
  Runs runs;
  FORETOKEN_RETURN_IF_ERROR(ForEachJsonRow(
      path, [&](const Json& row) { return ReadRow(row, runs); }));
  std::vector<std::string> methods;
  RecordedRun* match = nullptr;
  int matches = 0;
  for (auto& [name, run] : runs) {
    methods.push_back(name);
    if (!absl::StrContains(name, method)) continue;
    match = &run;
    ++matches;
  }
  if (matches != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": method \"", method,
        "\", want a part of exactly one of: ", absl::StrJoin(methods, "; ")));
  }
  return std::move(*match);
}

int32_t DraftSchedule::Next(int32_t drafted, int32_t accepted) const {
  if (constant > 0) return constant;
  return accepted == drafted ? drafted + kMore : std::max(1, drafted - 1);
}

absl::StatusOr<StepsSet> JoinSteps(RecordedSet set, const RecordedRun& run,
                                   const DraftSchedule& schedule,
                                   int max_tree_nodes) {
  StepsSet joined;
  joined.set.file = set.file;
  std::map<std::string, size_t> seen;  // turns of the id
  for (RecordedTurn& turn : set.turns) {
    const size_t number = seen[turn.id]++;
    const auto row = run.turns.find(turn.id);
    if (row == run.turns.end() || number >= row->second.size()) {
      ++joined.left_out;
      continue;
    }
    const TurnSteps& steps = row->second[number];
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(CheckSteps(steps, schedule, max_tree_nodes),
                 absl::StrCat(run.method, ": ", turn.id, " turn ", number)));
    const size_t length =
        std::accumulate(steps.begin(), steps.end(), size_t{0});
    // The set's output stands in for the run's own text, which is not recorded.
    const size_t own = turn.output.size();
    turn.output.resize(length);
    for (size_t i = own; i < length; ++i) turn.output[i] = turn.output[i - own];
    joined.set.turns.push_back(std::move(turn));
    joined.steps.push_back(steps);
  }
  return joined;
}

}  // namespace foretoken::model_replay
