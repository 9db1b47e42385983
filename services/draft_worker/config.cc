#include "services/draft_worker/config.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/drafting/static_prior.h"
#include "common/engine/start/engine_start.h"
#include "common/infer/model_path.h"
#include "common/text/model_tokenizer.h"
#include "services/draft_worker/adapters/common_ids.h"

namespace foretoken::draft_worker {
namespace {

// Time to measure passes at start, and their most rows.
constexpr absl::Duration kTimingBudget = absl::Milliseconds(250);
constexpr int32_t kTimedRows = 64;

// Chooses what the LM head computes besides the model's end tokens: the control
// tokens, which chats use, and the commonest ids of the prior.
absl::Status ChooseHead(const Tokenizer& tokenizer,
                        DraftWorkerService& service) {
  std::vector<TokenId>& first = service.backend.head_first;
  // First the tokens without which chats do not work: they are rare in a
  // corpus, so a prior alone would leave them out of a small vocabulary.
  first = ControlIds(tokenizer.vocabulary());
  if (service.prior.empty() || service.loading.vocabulary == 0) {
    return absl::OkStatus();
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto prior,
      StaticPrior::Open(service.prior, tokenizer.fingerprint()));
  const std::vector<TokenId> common = CommonestIds(*prior);
  first.insert(first.end(), common.begin(), common.end());
  return absl::OkStatus();
}

// Takes fingerprint, vocabulary size and the ids to compute from the model's
// tokenizer, if it has one.
absl::Status ReadTokenizer(DraftWorkerService& service) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto tokenizer,
                             LoadModelTokenizer(service.backend.model));
  if (tokenizer == nullptr) {
    if (service.prior.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError("--prior: the model has no tokenizer");
  }
  FORETOKEN_RETURN_IF_ERROR(ChooseHead(*tokenizer, service));
  service.server.tokenizer_fingerprint = tokenizer->fingerprint_bytes();
  // Models often have more rows of logits than tokens; ids beyond the
  // tokenizer's are never right and would fail the target's checks.
  if (service.engine.vocab_limit == 0) {
    service.engine.vocab_limit = tokenizer->vocab_size();
  }
  return absl::OkStatus();
}

}  // namespace

DraftWorkerService::DraftWorkerService() {
  // A draft of mode `ouroboros` may take 300 rows.
  backend.max_rows = 1024;
}

void DraftWorkerService::AddFlags(Flags& flags) {
  backend.AddFlags(flags);
  loading.AddFlags(flags);
  flags.String("prior", &prior,
               "Prior (foretoken prior build) whose commonest tokens are the "
               "ids of --draft-vocabulary; empty: the vocabulary's first ids");
  flags.String(
      "model-name", &server.model_name,
      "Model name in the log; empty: the name in the model's file, or that of "
      "its file or directory");
  flags.Int("vocab-limit", &engine.vocab_limit, {0, 1 << 30},
            "Never propose token ids at or above this; 0 for the vocabulary "
            "size of the model's tokenizer");
  flags.Int("max-sessions", &engine.max_sessions, {1, 1 << 16},
            "Maximum number of open drafting sessions");
  // Every open stream may hold a thread.
  server.streams.AddFlags(flags, "Draft streams", 1 << 12);
  flags.Int("max-rows-per-session", &engine.max_rows_per_session, {1, 1 << 12},
            "Maximum draft rows of a session in a pass");
  flags.Int("prefill-chunk", &engine.prefill_chunk, {1, 1 << 16},
            "Prompt rows of a pass that also drafts");
  flags.Int("pool-phrases", &engine.max_pool_phrases, {1, 1 << 20},
            "Maximum phrases in a session's working pool");
  flags.Int("engine-queue", &server.loop.queue_capacity, {1, 1 << 20},
            "Maximum sessions queued to be opened");
  AddHangFlags(flags, server.loop);
}

absl::StatusOr<std::unique_ptr<DraftWorkerServer>> DraftWorkerService::Make(
    metrics::Registry& registry) const {
  DraftWorkerService made = *this;
  made.engine.max_rows_per_pass = backend.max_rows;
  FORETOKEN_RETURN_IF_ERROR(made.engine.Validate());
  loading.ApplyTo(made.backend);
  std::string& name = made.server.model_name;
  if (name.empty()) {
    name = backend.model.empty() ? "random" : ModelNameOf(backend.model);
  }
  // Before its tokenizer, whose format says less about why it is not supported.
  if (!backend.model.empty()) {
    FORETOKEN_RETURN_IF_ERROR(CheckModel(backend.model));
  }
  FORETOKEN_RETURN_IF_ERROR(ReadTokenizer(made));
  FORETOKEN_ASSIGN_OR_RETURN(
      std::unique_ptr<Backend> loaded,
      StartBackend(made.backend, absl::StrCat("draft model ", name)));
  // Before the first long prompt, nothing else says how long its pass may take.
  (void)TimePasses(*loaded, std::min(kTimedRows, backend.max_rows),
                   kTimingBudget, backend.max_rows, made.server.loop);
  return std::make_unique<DraftWorkerServer>(
      made.server,
      std::make_unique<DraftEngine>(made.engine, std::move(loaded)), registry);
}

}  // namespace foretoken::draft_worker
