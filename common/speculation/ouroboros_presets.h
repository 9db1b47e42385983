// The settings of Ouroboros by task and model family: a name in place of
// gamma, window, beta and suffixes, `ouroboros:preset=gsm8k_yi`. `paper` is
// Algorithm 1 at the settings that this project measures it with.
//
// A preset is a shorthand of a mode's text. It is replaced by its parameters
// where the mode is created, so that a request carries the parameters alone.
//
// Source: the settings that Ouroboros, arXiv:2402.13720, lists in Table 7, as
// the commands in the authors' benchmark scripts give them (thunlp/Ouroboros:
// benchmark/test_*.py at 6a586ca, Spec-Bench's at 7dac65b); the numbers are not
// checked against the table itself. Their lookahead_level counts a phrase's
// tokens with its key, as beta does here; window_size and guess_set_size, equal
// throughout, are the window; topk, 3 throughout, are the suffixes.
#ifndef FORETOKEN_COMMON_SPECULATION_OUROBOROS_PRESETS_H_
#define FORETOKEN_COMMON_SPECULATION_OUROBOROS_PRESETS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/speculation/mode_spec.h"

namespace foretoken {

struct OuroborosPreset {
  absl::string_view name;  // <task>_<family of the models>, or paper
  int gamma;
  int window;
  int beta;
  int suffixes;
};

absl::Span<const OuroborosPreset> OuroborosPresets();

// `spec` with the parameters of its `preset` in that parameter's place, except
// those that it gives itself; `spec` itself if it names none. InvalidArgument
// lists the presets for an unknown one.
absl::StatusOr<ModeSpec> ExpandOuroborosPreset(ModeSpec spec);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_OUROBOROS_PRESETS_H_
