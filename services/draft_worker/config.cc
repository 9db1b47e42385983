#include "services/draft_worker/config.h"

#include <utility>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/text/tokenizer.h"

namespace foretoken::draft_worker {
namespace {

// Takes fingerprint and size of the model's tokenizer, where it has one.
absl::Status ReadTokenizer(DraftWorkerParts& parts) {
  if (parts.backend.model.empty()) return absl::OkStatus();
  const auto tokenizer = Tokenizer::Load(parts.backend.model);
  if (absl::IsNotFound(tokenizer.status())) return absl::OkStatus();
  FORETOKEN_RETURN_IF_ERROR(tokenizer.status());
  const Sha256Digest& digest = (*tokenizer)->fingerprint();
  parts.server.tokenizer_fingerprint.assign(digest.begin(), digest.end());
  if (parts.engine.vocab_limit == 0) {
    parts.engine.vocab_limit = (*tokenizer)->vocab_size();
  }
  return absl::OkStatus();
}

}  // namespace

DraftWorkerParts::DraftWorkerParts() {
  // A draft of mode `ouroboros` may take 300 rows.
  backend.max_rows = 1024;
}

void AddDraftWorkerFlags(Flags& flags, DraftWorkerParts* parts) {
  AddBackendFlags(flags, &parts->backend);
  flags.String("model-name", &parts->server.model_name,
               "Name of the model that clients see");
  flags.Int("vocab-limit", &parts->engine.vocab_limit, {0, 1 << 30},
            "Token ids at or above are never proposed, 0 for the size of the "
            "model's tokenizer");
  flags.Int("max-sessions", &parts->engine.max_sessions, {1, 1 << 16},
            "Drafting sessions open at once");
  flags.Int("max-streams", &parts->server.max_streams, {1, 1 << 12},
            "Draft streams open at once");
  flags.Duration("first-message-time", &parts->server.first_message_time,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Time that a new stream has to say something");
  flags.Int("max-rows-per-session", &parts->engine.max_rows_per_session,
            {1, 1 << 12}, "Rows of one session in a pass below its text");
  flags.Int("prefill-chunk", &parts->engine.prefill_chunk, {1, 1 << 16},
            "Rows of text in a pass beside drafts");
  flags.Int("pool-phrases", &parts->engine.max_pool_phrases, {1, 1 << 20},
            "Phrases of one session's working pool");
  flags.Int("engine-queue", &parts->server.loop.queue_capacity, {1, 1 << 20},
            "Sessions that may wait to be opened");
  flags.Duration("retry-after", &parts->server.retry_after,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Hint that comes with RESOURCE_EXHAUSTED");
}

absl::StatusOr<DraftWorkerConfig> DraftWorkerConfig::Parse(
    int argc, const char* const* argv) {
  DraftWorkerConfig config;
  Flags flags("foretoken-draft-worker",
              "Runs the draft model: chains, and phrase-level drafting.");
  AddDraftWorkerFlags(flags, &config.parts);
  rpc::AddServerFlags(flags, "127.0.0.1:50052", &config.rpc);
  metrics::AddExposerFlags(flags, "127.0.0.1:9102", &config.metrics);
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  config.effective = flags.Effective();
  return config;
}

absl::StatusOr<std::unique_ptr<DraftWorkerServer>> MakeDraftWorkerServer(
    DraftWorkerParts parts, metrics::Registry& registry) {
  parts.engine.max_rows_per_pass = parts.backend.max_rows;
  FORETOKEN_RETURN_IF_ERROR(parts.engine.Validate());
  FORETOKEN_RETURN_IF_ERROR(ReadTokenizer(parts));
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                             MakeBackend(parts.backend));
  FORETOKEN_LOG(kInfo, "draft model ", parts.server.model_name,
                " ready, numerics ", backend->numerics_fingerprint(),
                ", KV pages ", backend->kv_usage().pages_total);
  return std::make_unique<DraftWorkerServer>(
      parts.server,
      std::make_unique<DraftEngine>(parts.engine, std::move(backend)),
      registry);
}

}  // namespace foretoken::draft_worker
