#include "services/trie_drafter/config.h"

#include <utility>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/text/tokenizer.h"

namespace foretoken::trie_drafter {
namespace {

void AddCoreFlags(Flags& flags, TrieDrafterParts* parts) {
  TrieOptions* const core = &parts->core;
  flags.Int("max-streams", &parts->server.max_streams, {1, 1 << 16},
            "Draft streams open at once");
  flags.Duration("first-message-time", &parts->server.first_message_time,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Time that a new stream has to say something");
  flags.Int("max-sessions", &core->max_sessions, {1, 1 << 16},
            "Drafting sessions open at once");
  flags.Int64("session-bytes", &core->max_session_bytes,
              {1 << 20, int64_t{1} << 42},
              "Memory of all sessions' own tries, above which none opens");
  flags.Int64("max-context-tokens", &core->max_context_tokens,
              {1, int64_t{1} << 22}, "Longest text of a session");
  flags.Int("max-tree-nodes", &core->max_nodes, {1, 1024}, "Nodes of a draft");
  flags.Int("threads", &parts->server.threads, {0, 1024},
            "Threads that draft, 0 for one a core");
  flags.Duration("retry-after", &parts->server.retry_after,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Hint that comes with RESOURCE_EXHAUSTED");
}

void AddScopeFlags(Flags& flags, ScopeOptions* scopes) {
  flags.Int("max-scopes", &scopes->max_scopes, {1, 1 << 20},
            "Cache scopes in memory, least recently used out");
  flags.Int64("shared-bytes", &scopes->max_bytes, {1 << 20, int64_t{1} << 42},
              "Memory of all scopes' histories and pools");
  flags.Int64("history-tokens", &scopes->history_tokens,
              {1 << 10, int64_t{1} << 26},
              "Tokens of earlier outputs that a scope keeps");
  flags.Int("pool-width", &scopes->pool_width,
            {1, PhrasePoolOptions::kMaxWidth},
            "Phrases of one first token in a scope's pool");
  flags.Int64("pool-phrases", &scopes->pool_phrases, {1, int64_t{1} << 24},
              "Phrases of one length in a scope's pool");
}

void AddRedisFlags(Flags& flags, TrieDrafterParts* parts) {
  RedisStoreOptions* const redis = &parts->redis;
  flags.Url("redis-url", &parts->redis_url,
            "Warm start: redis://HOST[:PORT][/N] or unix:///PATH, with "
            "[USER]:PASSWORD@ in the environment; empty for none");
  flags.Duration("redis-timeout", &redis->client.command_timeout,
                 {absl::Milliseconds(1), absl::Minutes(1)},
                 "Longest wait for Redis' answer, in the background");
  flags.Duration("redis-connect-timeout", &redis->client.connect_timeout,
                 {absl::Milliseconds(1), absl::Minutes(1)},
                 "Longest wait for a connection to Redis");
  flags.Duration("redis-max-pause", &redis->max_pause,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Longest pause between two attempts to reach Redis");
  flags.Duration("warm-start-expiry", &redis->expiry,
                 {absl::Seconds(1), absl::Hours(24 * 365)},
                 "Time that a scope without requests is stored");
  flags.Int("warm-start-records", &redis->max_records, {1, 256},
            "Stored outputs of a scope, and stored lots of phrases");
  flags.Int("warm-start-queue", &redis->queue, {1, 1 << 16},
            "Loads that may wait for Redis, and writes");
}

}  // namespace

void AddTrieDrafterFlags(Flags& flags, TrieDrafterParts* parts) {
  flags.String("tokenizer", &parts->tokenizer,
               "Model directory or tokenizer file that all text must belong "
               "to; wanted by --prior");
  flags.String("prior", &parts->prior,
               "Static prior of mode auto (foretoken prior build)");
  AddCoreFlags(flags, parts);
  AddScopeFlags(flags, &parts->core.scopes);
  AddRedisFlags(flags, parts);
  flags.Require("prior", [parts] {
    return parts->prior.empty() || !parts->tokenizer.empty()
               ? std::string()
               : std::string("want --tokenizer with it");
  });
  flags.Require("redis-url", [parts] {
    return parts->redis_url.empty()
               ? std::string()
               : std::string(
                     RedisAddress::Parse(parts->redis_url).status().message());
  });
}

absl::StatusOr<TrieDrafterConfig> TrieDrafterConfig::Parse(
    int argc, const char* const* argv) {
  TrieDrafterConfig config;
  Flags flags("foretoken-trie-drafter",
              "Drafts from a request's own text and its scope's earlier "
              "outputs; keeps the shared phrase pool.");
  AddTrieDrafterFlags(flags, &config.parts);
  rpc::AddServerFlags(flags, "127.0.0.1:50053", &config.rpc);
  metrics::AddExposerFlags(flags, "127.0.0.1:9103", &config.metrics);
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  config.effective = flags.Effective();
  return config;
}

absl::StatusOr<std::unique_ptr<TrieDrafterServer>> MakeTrieDrafterServer(
    TrieDrafterParts parts, metrics::Registry& registry) {
  std::shared_ptr<const StaticPrior> prior;
  if (!parts.tokenizer.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(const auto tokenizer,
                               Tokenizer::Load(parts.tokenizer));
    const Sha256Digest& digest = tokenizer->fingerprint();
    parts.server.tokenizer_fingerprint.assign(digest.begin(), digest.end());
    parts.redis.vocab_size = tokenizer->vocab_size();
    if (!parts.prior.empty()) {
      FORETOKEN_ASSIGN_OR_RETURN(prior, StaticPrior::Open(parts.prior, digest));
      FORETOKEN_LOG(kInfo, "static prior: ", prior->entries(), " n-grams");
    }
  }
  TrieDrafterServer::MakeStore make_store =
      [](WarmStoreObserver&) -> std::unique_ptr<WarmStore> { return nullptr; };
  if (parts.redis_url.empty()) {
    FORETOKEN_LOG(kInfo, "no warm start: no --redis-url");
  } else {
    FORETOKEN_ASSIGN_OR_RETURN(RedisAddress address,
                               RedisAddress::Parse(parts.redis_url));
    make_store =
        [address = std::move(address), redis = parts.redis](
            WarmStoreObserver& observer) -> std::unique_ptr<WarmStore> {
      return std::make_unique<RedisWarmStore>(address, redis, observer);
    };
  }
  return std::make_unique<TrieDrafterServer>(
      parts.server, parts.core, std::move(prior), make_store, registry);
}

}  // namespace foretoken::trie_drafter
