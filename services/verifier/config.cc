#include "services/verifier/config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/engine/start/engine_start.h"
#include "common/grammar/token_trie.h"
#include "common/infer/model_path.h"
#include "common/infer/self_check.h"
#include "common/rpc/constraint_flags.h"
#include "common/text/model_tokenizer.h"

namespace foretoken::verifier {
namespace {

// Time to measure passes at start.
constexpr absl::Duration kTimingBudget = absl::Seconds(1);
// Memory for automata and masks, however small the cache of grammars is.
constexpr int64_t kLeastGrammarBytes = int64_t{64} << 20;

}  // namespace

void VerifierService::AddFlags(Flags& flags) {
  backend.AddFlags(flags);
  flags.String(
      "model-name", &server.model_name,
      "Model name shown to clients; empty: the name in the model's file, or "
      "that of its file or directory");
  flags.Int("max-sessions", &engine.max_sessions, {1, 1 << 16},
            "Maximum number of open sessions, queued ones included");
  server.streams.AddFlags(flags, "Verify streams");
  flags.Int("max-tree-nodes", &server.sessions.max_tree_nodes, {1, 256},
            "Maximum draft nodes of a tree");
  flags.Int("max-rows-per-session", &server.sessions.max_rows_per_session,
            {1, 4000}, "Maximum draft and probe nodes of a round");
  flags.Int("prefill-chunk", &engine.prefill_chunk, {1, 1 << 16},
            "Prompt rows of a pass that also runs rounds");
  flags.Duration("idle-time", &engine.idle_time,
                 {absl::Milliseconds(1), absl::Hours(24)},
                 "Allow preemption of a session that waits longer than this "
                 "for its client; it is replayed when it resumes");
  flags.Int("engine-queue", &server.sessions.loop.queue_capacity, {1, 1 << 20},
            "Maximum messages queued for the engine");
  flags.Bool("draft-guard", &draft_guard,
             "Measure at every load whether drafting pays, and stop it for "
             "requests in mode auto where it does not; off: the price of rows "
             "alone decides");
  rpc::AddConstraintFlags(flags, &server.sessions.constraints.grammars);
  AddHangFlags(flags, server.sessions.loop);
  flags.Duration("gather-time", &server.sessions.loop.gather_time,
                 {absl::ZeroDuration(), absl::Seconds(1)},
                 "Maximum wait for more sessions to join the next pass");
}

absl::StatusOr<std::unique_ptr<VerifierServer>> VerifierService::Make(
    metrics::Registry& registry) const {
  VerifierServerOptions server_options = server;
  std::string& name = server_options.model_name;
  if (name.empty()) {
    name = backend.model.empty() ? "random" : ModelNameOf(backend.model);
  }
  registry.SetModelName(name);
  VerifyEngineOptions engine_options = engine;
  engine_options.max_rows_per_pass = backend.max_rows;
  // One more for row 0.
  engine_options.max_rows_per_session =
      server.sessions.max_rows_per_session + 1;
  if (!draft_guard) engine_options.guard = GuardMode::kWide;
  FORETOKEN_RETURN_IF_ERROR(engine_options.Validate());
  // Before its tokenizer, whose format says less about why it is not supported.
  if (!backend.model.empty()) {
    FORETOKEN_RETURN_IF_ERROR(CheckModel(backend.model));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const auto tokenizer,
                             LoadModelTokenizer(backend.model));
  if (tokenizer != nullptr) {
    // Tells orchestrators whether their tokenizer is this model's.
    server_options.tokenizer_fingerprint = tokenizer->fingerprint_bytes();
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      std::unique_ptr<Backend> loaded,
      StartBackend(backend, absl::StrCat("model ", name)));
  // A model may have more rows of logits than its tokenizer has tokens.
  engine_options.vocabulary =
      grammar::TokenVocabulary::Of(tokenizer, loaded->config().vocab_size);
  // Automata and masks of a grammar that is in use take several times as much
  // as the grammar.
  engine_options.grammar_bytes = std::max(
      kLeastGrammarBytes, 8 * server.sessions.constraints.grammars.cache_bytes);
  if (engine_options.vocabulary != nullptr) {
    engine_options.vocabulary->PrepareMasks();
  }
  engine_options.model_fault = CheckLogits(*loaded);
  // Up to twice a tree, to price passes that several sessions share.
  const auto timing =
      TimePasses(*loaded, 2 * server.sessions.max_tree_nodes, kTimingBudget,
                 backend.max_rows, server_options.sessions.loop);
  if (timing.ok()) engine_options.pass_timing = *timing;
  return std::make_unique<VerifierServer>(
      server_options,
      std::make_unique<VerifyEngine>(engine_options, std::move(loaded)),
      registry);
}

}  // namespace foretoken::verifier
