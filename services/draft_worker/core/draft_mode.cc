#include "services/draft_worker/core/draft_mode.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/draft_worker/core/chain_mode.h"
#include "services/draft_worker/core/ouroboros_mode.h"

namespace foretoken::draft_worker {
namespace {

// Of gamma and suffixes, as max_tree_nodes has it.
constexpr int kMaxDraft = 256;

absl::StatusOr<std::unique_ptr<DraftMode>> MakeChain(const ModeSpec& spec,
                                                     const ModeLimits& limits) {
  ModeReader read(spec);
  const int gamma = static_cast<int>(read.Int("gamma", 5, 1, kMaxDraft));
  FORETOKEN_RETURN_IF_ERROR(read.Finish());
  if (gamma > limits.max_rows) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mode 'draft_model': gamma is ", gamma, ", want 1..", limits.max_rows));
  }
  return std::make_unique<ChainMode>(gamma, limits);
}

absl::StatusOr<std::unique_ptr<DraftMode>> MakeOuroboros(
    const ModeSpec& spec, const ModeLimits& limits,
    absl::Span<const Phrase> warm_start) {
  OuroborosOptions options;
  ModeReader read(spec);
  options.gamma =
      static_cast<int>(read.Int("gamma", options.gamma, 1, kMaxDraft));
  options.window = static_cast<int>(
      read.Int("window", options.window, 1, PhrasePoolOptions::kMaxWidth));
  options.beta = static_cast<int>(
      read.Int("beta", options.beta, 2, PhrasePoolOptions::kMaxPhraseTokens));
  options.suffixes =
      static_cast<int>(read.Int("suffixes", options.suffixes, 0, kMaxDraft));
  options.inspiration = read.Bool("inspiration", options.inspiration);
  options.refinement = read.Bool("refinement", options.refinement);
  options.warm_start = read.Bool("warm_start", options.warm_start);
  options.passes =
      static_cast<int>(read.Int("passes", options.passes, 0, kMaxDraft));
  options.lookahead = static_cast<int>(
      read.Int("lookahead", options.window, 0, PhrasePoolOptions::kMaxWidth));
  options.context = read.Bool("context", options.context);
  FORETOKEN_RETURN_IF_ERROR(read.Finish());
  if (options.MaxRows() > limits.max_rows) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mode 'ouroboros': window=", options.window,
        ", lookahead=", options.lookahead, ", beta=", options.beta,
        " and gamma=", options.gamma, " need passes of ", options.MaxRows(),
        " rows, want at most ", limits.max_rows));
  }
  return std::make_unique<OuroborosMode>(options, limits, warm_start);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DraftMode>> MakeDraftMode(
    const ModeSpec& spec, const ModeLimits& limits,
    absl::Span<const Phrase> warm_start) {
  if (spec.name() == "draft_model") return MakeChain(spec, limits);
  if (spec.name() == "ouroboros") {
    return MakeOuroboros(spec, limits, warm_start);
  }
  return absl::UnimplementedError(
      absl::StrCat("mode '", spec.name(),
                   "' is not drafted here, want draft_model or ouroboros"));
}

}  // namespace foretoken::draft_worker
