// ModeRun: prompts decoded under one drafting mode, one after another, on a
// target and a draft model in this process, with every pass counted.
//
// Modes: `off`, `lookahead`, `draft_model` and `ouroboros`. Rows are those that
// the engines report of their passes, so that they follow what an engine keeps
// of its KV; passes over prompts are not counted. Drafts have no deadline:
// counts depend on the models and the prompts alone.
//
// Owned by one thread.
#ifndef FORETOKEN_TESTS_LAB_MODE_RUN_H_
#define FORETOKEN_TESTS_LAB_MODE_RUN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/drafting/phrase_pool.h"
#include "common/speculation/modes.h"
#include "services/draft_worker/core/draft_engine.h"
#include "services/orchestrator/core/round/round_drafting.h"
#include "services/verifier/core/verify_engine.h"
#include "tests/lab/draft_matches.h"
#include "tests/lab/row_counts.h"
#include "tests/support/in_process_verifier.h"

namespace foretoken {

struct ModeCounts {
  int64_t rounds = 0;  // passes of the target
  int64_t tokens = 0;  // that they committed
  int64_t nodes = 0;   // of drafts, without rows that are only read
  RowCounts target;
  RowCounts draft;
  Matches matches;
  draft_worker::ModeTotals phrases;
  std::vector<std::vector<TokenId>> outputs;  // by prompt
};

struct ModeRunOptions {
  int32_t max_tokens = 128;  // of an output
  int32_t max_nodes = 64;    // of a draft
  // Working pools begin with what earlier prompts' pools gained.
  bool warm_start = false;
};

class ModeRun {
 public:
  // Both engines must outlive this object; `draft` may be null if no mode asks
  // for a draft model.
  ModeRun(verifier::VerifyEngine& target, draft_worker::DraftEngine* draft,
          const ModeRunOptions& options);

  // Unimplemented for another mode; the engines' errors.
  absl::StatusOr<ModeCounts> Run(
      const Mode& mode, absl::Span<const std::vector<TokenId>> prompts);

 private:
  absl::StatusOr<orchestrator::DraftSources> Sources(const Mode& mode,
                                                     PhrasePool& earlier,
                                                     ModeCounts& counts);
  absl::Status RunPrompt(orchestrator::DraftSources sources,
                         const std::vector<TokenId>& prompt,
                         ModeCounts& counts);

  const ModeRunOptions options_;
  verifier::VerifyEngine& target_;
  draft_worker::DraftEngine* const draft_;
  testing::EngineDriver driver_;
};

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_MODE_RUN_H_
