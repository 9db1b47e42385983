// The figures of a model replay as JSON and as a table. Both carry kLabel, so
// that a measurement with random weights is never taken for one of a trained
// model.
#ifndef FORETOKEN_TESTS_LAB_MODEL_REPLAY_MODEL_REPLAY_REPORT_H_
#define FORETOKEN_TESTS_LAB_MODEL_REPLAY_MODEL_REPLAY_REPORT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/json_fwd.h"
#include "tests/lab/model_replay/model_replayer.h"

namespace foretoken::model_replay {

inline constexpr char kLabel[] =
    "real passes of random weights; accepted by the recording";

// Parameters of the run, copied into the report.
struct ReplaySetup {
  std::string mode;
  std::string state;           // cold or online, as in foretoken replay
  std::string shape;           // shape of the target
  std::string backend;         // its numerics fingerprint
  std::string file;            // the recorded set
  std::string node_price;      // "measured": trees cut to what pays; or "none"
  std::string draft_shape;     // shape of the recorded draft model, or empty
  std::string method;          // method of its run
  int64_t turns_left_out = 0;  // turns that its run lacks
  int max_tree_nodes = 0;
  int64_t window = 0;       // tokens decoded of each output; 0: all
  uint64_t window_seed = 0;
  std::vector<std::pair<double, double>> pass_ms;  // rows, milliseconds
};

struct ReplaySummary {
  explicit ReplaySummary(absl::Span<const TurnResult* const> of);

  int64_t turns = 0;
  int64_t tokens = 0;  // without those from prefill
  int64_t rounds = 0;
  double accept_length = 1.0;  // tokens over rounds, as in foretoken replay
  double mean_rows = 1.0;      // rows per pass of a speculative round
  // Tokens per second after prefill, and their ratio.
  double plain_tok_s = 0;
  double speculative_tok_s = 0;
  double speedup = 1.0;
  double drafting_share = 0;  // share of the speculative seconds after prefill
  // Ratio of total seconds, including prefill and the first token. Reports of
  // windows, where no prefill is timed, leave out this and the next figure.
  double speedup_with_prefill = 1.0;
  // As Spec-Bench computes it: mean over questions (the turns of one id
  // together) of tokens per second, ratio of the means.
  double spec_bench_speedup = 1.0;
};

// {"label","mode","state","shape","backend","file","node_price",
// "max_tree_nodes","pass_costs":[{"rows","ms"}],"all":{...},
// "categories":{name:{...}}}, with "draft_shape","method","turns_left_out" for a
// recorded draft model, and "window","window_seed" where windows were decoded;
// {...} is a ReplaySummary, field by field.
Json ModelReplayJson(const ReplaySetup& setup,
                     absl::Span<const TurnResult> turns);

// The same for human readers, each line ending in a newline. Made from the
// JSON, so the two always agree.
std::string ModelReplayTable(const Json& report);

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TESTS_LAB_MODEL_REPLAY_MODEL_REPLAY_REPORT_H_
