#include "services/verifier/config.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/infer/pass_timing.h"
#include "common/text/tokenizer.h"

namespace foretoken::verifier {
namespace {

// Of the measurement of passes at the start.
constexpr absl::Duration kTimingBudget = absl::Seconds(1);

}  // namespace

void AddVerifierFlags(Flags& flags, BackendOptions* backend,
                      VerifyEngineOptions* engine,
                      VerifierServerOptions* server) {
  AddBackendFlags(flags, backend);
  flags.String("model-name", &server->model_name,
               "Name of the model that clients see");
  flags.Int("max-sessions", &engine->max_sessions, {1, 1 << 16},
            "Sessions open at once, waiting ones included");
  flags.Int("max-streams", &server->max_streams, {1, 1 << 16},
            "Verify streams open at once");
  flags.Duration("first-message-time", &server->first_message_time,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Time that a new stream has to say something");
  flags.Int("max-tree-nodes", &server->sessions.max_tree_nodes, {1, 256},
            "Draft nodes of one tree");
  flags.Int("max-rows-per-session", &server->sessions.max_rows_per_session,
            {1, 4000}, "Draft and probe nodes of one round");
  flags.Int("prefill-chunk", &engine->prefill_chunk, {1, 1 << 16},
            "Prompt rows of a pass beside rounds");
  flags.Duration("idle-time", &engine->idle_time,
                 {absl::Milliseconds(1), absl::Hours(24)},
                 "A session that waits longer for its client may lose its KV "
                 "to others, and is replayed when it goes on");
  flags.Int("engine-queue", &server->sessions.loop.queue_capacity, {1, 1 << 20},
            "Messages that may wait for the engine");
  flags.Duration("gather-time", &server->sessions.loop.gather_time,
                 {absl::ZeroDuration(), absl::Seconds(1)},
                 "Longest wait for sessions to share the next pass");
  flags.Duration("retry-after", &server->retry_after,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Hint that comes with RESOURCE_EXHAUSTED");
}

absl::StatusOr<VerifierConfig> VerifierConfig::Parse(int argc,
                                                     const char* const* argv) {
  VerifierConfig config;
  Flags flags("foretoken-verifier",
              "Runs the target model: verifies token trees in batches.");
  AddVerifierFlags(flags, &config.backend, &config.engine, &config.server);
  rpc::AddServerFlags(flags, "127.0.0.1:50051", &config.rpc);
  metrics::AddExposerFlags(flags, "127.0.0.1:9101", &config.metrics);
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  config.effective = flags.Effective();
  return config;
}

absl::StatusOr<std::unique_ptr<VerifierServer>> MakeVerifierServer(
    const BackendOptions& backend, VerifyEngineOptions engine,
    VerifierServerOptions server, metrics::Registry& registry) {
  engine.max_rows_per_pass = backend.max_rows;
  // Row 0 stands beside the nodes.
  engine.max_rows_per_session = server.sessions.max_rows_per_session + 1;
  FORETOKEN_RETURN_IF_ERROR(engine.Validate());
  if (!backend.model.empty()) {
    // Tells orchestrators whether their tokenizer is this model's.
    const auto tokenizer = Tokenizer::Load(backend.model);
    if (tokenizer.ok()) {
      const Sha256Digest& digest = (*tokenizer)->fingerprint();
      server.tokenizer_fingerprint.assign(digest.begin(), digest.end());
    } else if (!absl::IsNotFound(tokenizer.status())) {
      return tokenizer.status();
    }
  }
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Backend> loaded,
                             MakeBackend(backend));
  FORETOKEN_LOG(kInfo, "model ", server.model_name, " ready, numerics ",
                loaded->numerics_fingerprint(), ", KV pages ",
                loaded->kv_usage().pages_total);
  // Twice a tree: what several sessions share is priced, too.
  const auto timing = PassTiming::Measure(
      *loaded, 2 * server.sessions.max_tree_nodes, kTimingBudget);
  if (timing.ok()) {
    engine.pass_timing = *timing;
  } else {
    FORETOKEN_LOG(kWarning,
                  "passes could not be timed, prices follow from the "
                  "first ones: ",
                  timing.status().ToString());
  }
  return std::make_unique<VerifierServer>(
      server, std::make_unique<VerifyEngine>(engine, std::move(loaded)),
      registry);
}

}  // namespace foretoken::verifier
