#include "services/trie_drafter/config.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/text/tokenizer.h"

namespace foretoken::trie_drafter {
namespace {

constexpr int64_t kMaxTextRecords = 1024;

void AddScopeFlags(Flags& flags, ScopeOptions& scopes) {
  flags.Int("max-scopes", &scopes.max_scopes, {1, 1 << 20},
            "Maximum cache scopes in memory; the least recently used is "
            "evicted");
  flags.Int64("shared-bytes", &scopes.max_bytes, {1 << 20, int64_t{1} << 42},
              "Maximum memory of all scopes' histories and pools");
  flags.Int64("history-tokens", &scopes.history_tokens,
              {1 << 10, int64_t{1} << 26},
              "Maximum tokens of earlier outputs in a scope");
  flags.Int("pool-width", &scopes.pool_width, {1, PhrasePoolOptions::kMaxWidth},
            "Maximum phrases per first token in a scope's pool");
  flags.Int64("pool-phrases", &scopes.pool_phrases, {1, int64_t{1} << 24},
              "Maximum phrases per length in a scope's pool");
}

// Number of stored records that hold the text of a scope's prior and history.
// Twice what is needed, since a replica that stops stores a batch that is not
// full. At most 64 MiB.
int32_t TextRecords(const ScopeOptions& scopes) {
  if (scopes.prior.max_tokens == 0) return 0;
  const int64_t tokens = scopes.prior.max_tokens + scopes.history_tokens;
  // A full history and prior, in records of kMaxRecordTokens, and one that is
  // partly filled.
  return static_cast<int32_t>(std::min<int64_t>(
      kMaxTextRecords,
      2 * (tokens / static_cast<int64_t>(kMaxRecordTokens) + 1)));
}

void AddRedisFlags(Flags& flags, RedisStoreOptions& redis) {
  flags.Duration("redis-timeout", &redis.client.command_timeout,
                 {absl::Milliseconds(1), absl::Minutes(1)},
                 "Timeout of a Redis command, in the background");
  flags.Duration("redis-connect-timeout", &redis.client.connect_timeout,
                 {absl::Milliseconds(1), absl::Minutes(1)},
                 "Timeout of a connection to Redis");
  flags.Duration("redis-max-pause", &redis.max_pause,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Maximum back-off between attempts to reach Redis");
  flags.Duration("warm-start-expiry", &redis.expiry,
                 {absl::Seconds(1), absl::Hours(24 * 365)},
                 "Expiry of a stored scope without requests");
  flags.Int("warm-start-records", &redis.max_records, {1, 256},
            "Maximum stored outputs, and batches of phrases, of a scope");
  flags.Int("warm-start-queue", &redis.queue, {1, 1 << 16},
            "Maximum queued loads, and queued writes, for Redis");
}

}  // namespace

void AddScopePriorFlags(Flags& flags, ScopePriorOptions* prior) {
  flags.Int64("scope-prior-tokens", &prior->max_tokens, {0, int64_t{1} << 22},
              "Count up to this many tokens of a scope's outputs, those that "
              "left its history, into a prior of its own; 0 for none; needs a "
              "tokenizer");
  flags.Int64("scope-prior-every", &prior->compact_every,
              {1 << 10, int64_t{1} << 22},
              "New tokens to count before a scope's prior is built again");
  flags.Int64("scope-prior-bytes", &prior->max_bytes,
              {1 << 16, int64_t{1} << 30}, "Maximum size of a scope's prior");
}

void TrieDrafterService::AddFlags(Flags& flags) {
  flags.String("tokenizer", &tokenizer,
               "Model directory or tokenizer file; requests of another "
               "tokenizer are refused; required by --prior");
  flags.String("prior", &prior,
               "Static prior of mode auto (foretoken prior build)");
  server.streams.AddFlags(flags, "Draft streams");
  flags.Int("max-sessions", &core.max_sessions, {1, 1 << 16},
            "Maximum number of open drafting sessions");
  flags.Int64("session-bytes", &core.max_session_bytes,
              {1 << 20, int64_t{1} << 42},
              "Memory of all sessions' tries above which no session opens");
  flags.Int64("max-context-tokens", &core.max_context_tokens,
              {1, int64_t{1} << 22}, "Maximum text of a session, in tokens");
  flags.Int("max-tree-nodes", &core.max_nodes, {1, 1024},
            "Maximum nodes of a draft");
  flags.Int("threads", &server.threads, {0, 1024},
            "Drafting threads, 0 for one per core");
  AddScopeFlags(flags, core.scopes);
  AddScopePriorFlags(flags, &core.scopes.prior);
  flags.Url("redis-url", &redis_url,
            "Warm start: redis://HOST[:PORT][/N] or unix:///PATH, with "
            "[USER]:PASSWORD@ in the environment; empty for none");
  AddRedisFlags(flags, redis);
  // A prior holds token ids; without the tokenizer's fingerprint nothing tells
  // whether they are this model's.
  flags.Require("prior", [this]() -> std::string {
    return prior.empty() || !tokenizer.empty() ? "" : "requires --tokenizer";
  });
  flags.Require("scope-prior-tokens", [this]() -> std::string {
    return core.scopes.prior.max_tokens == 0 || !tokenizer.empty()
               ? ""
               : "requires --tokenizer";
  });
  flags.Require("redis-url", [this]() -> std::string {
    if (redis_url.empty()) return "";
    return std::string(RedisAddress::Parse(redis_url).status().message());
  });
}

absl::StatusOr<std::unique_ptr<TrieDrafterServer>> TrieDrafterService::Make(
    metrics::Registry& registry) const {
  TrieServerOptions server_options = server;
  TrieOptions core_options = core;
  RedisStoreOptions redis_options = redis;
  // Derived here, since it depends on flags of two parts.
  redis_options.max_texts = TextRecords(core.scopes);
  std::shared_ptr<const StaticPrior> loaded_prior;
  if (!tokenizer.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(const auto loaded,
                               Tokenizer::LoadShared(tokenizer));
    server_options.tokenizer_fingerprint = loaded->fingerprint_bytes();
    // Stored tokens are checked against it: Redis may hold what a service with
    // another tokenizer wrote.
    redis_options.vocab_size = loaded->vocab_size();
    if (!prior.empty()) {
      FORETOKEN_ASSIGN_OR_RETURN(
          loaded_prior, StaticPrior::Open(prior, loaded->fingerprint()));
      FORETOKEN_LOG(kInfo, "static prior: ", loaded_prior->entries(),
                    " n-grams");
    }
    core_options.scopes.prior.tokenizer = loaded->fingerprint();
    core_options.scopes.prior.vocab_size = loaded->vocab_size();
  }
  // The server calls this rather than taking a store, because the store reports
  // to the server's metrics.
  // Without Redis the drafter works the same, only cold after a restart.
  TrieDrafterServer::MakeStore make_store =
      [](WarmStoreObserver&) -> std::unique_ptr<WarmStore> { return nullptr; };
  if (redis_url.empty()) {
    FORETOKEN_LOG(kInfo, "no warm start: no --redis-url");
  } else {
    FORETOKEN_ASSIGN_OR_RETURN(RedisAddress address,
                               RedisAddress::Parse(redis_url));
    // Captured by value: the maker is called by the server's constructor, after
    // this scope's variables may be gone.
    make_store =
        [address = std::move(address), redis_options](
            WarmStoreObserver& observer) -> std::unique_ptr<WarmStore> {
      return std::make_unique<RedisWarmStore>(address, redis_options, observer);
    };
  }
  return std::make_unique<TrieDrafterServer>(server_options, core_options,
                                             std::move(loaded_prior),
                                             make_store, registry);
}

}  // namespace foretoken::trie_drafter
