// A model replay's figures as JSON and as a table. Both carry kLabel: nothing
// that random weights measured is to be taken for a trained model's run.
#ifndef FORETOKEN_TOOLS_CLI_MODEL_REPLAY_MODEL_REPLAY_REPORT_H_
#define FORETOKEN_TOOLS_CLI_MODEL_REPLAY_MODEL_REPLAY_REPORT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/json.h"
#include "tools/cli/model_replay/model_replayer.h"

namespace foretoken::model_replay {

inline constexpr char kLabel[] =
    "real passes of random weights; accepted by the recording";

// What was run; goes into the report as it is.
struct ReplaySetup {
  std::string mode;
  std::string state;           // cold or online, as foretoken replay's
  std::string shape;           // of the target
  std::string backend;         // its numerics fingerprint
  std::string file;            // the recorded set
  std::string node_price;      // "measured": trees cut to what pays; or "none"
  std::string draft_shape;     // of a recorded draft model, else empty
  std::string method;          // of its run
  int64_t turns_left_out = 0;  // that its run lacks
  int max_tree_nodes = 0;
  std::vector<std::pair<double, double>> pass_ms;  // rows, milliseconds
};

struct ReplaySummary {
  explicit ReplaySummary(absl::Span<const TurnResult* const> of);

  int64_t turns = 0;
  int64_t tokens = 0;  // beyond prefill's
  int64_t rounds = 0;
  double accept_length = 1.0;  // tokens over rounds, as foretoken replay's
  double mean_rows = 1.0;      // of a speculative round's pass
  // Tokens over the seconds after prefill, and the ratio of the two.
  double plain_tok_s = 0;
  double speculative_tok_s = 0;
  double speedup = 1.0;
  double drafting_share = 0;  // of the speculative seconds after prefill
  // Seconds of all of it, prefills and first tokens included.
  double speedup_with_prefill = 1.0;
  // The same as Spec-Bench counts it: the mean over questions (turns of one id
  // together) of tokens over seconds, ratio of the means.
  double spec_bench_speedup = 1.0;
};

// {"label","mode","state","shape","backend","file","node_price","max_tree_nodes",
// "pass_costs":[{"rows","ms"}],"all":{...},"categories":{name:{...}}}, with
// "draft_shape","method","turns_left_out" for a recorded draft model; {...} is
// a ReplaySummary, field by field.
Json ModelReplayJson(const ReplaySetup& setup,
                     absl::Span<const TurnResult> turns);

// The same for people, lines ended by newlines; from the JSON, so that both say
// one thing.
std::string ModelReplayTable(const Json& report);

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TOOLS_CLI_MODEL_REPLAY_MODEL_REPLAY_REPORT_H_
