// The trie drafter as a service: options, flags, start.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_CONFIG_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_CONFIG_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/run_service.h"
#include "services/trie_drafter/server.h"

namespace foretoken::trie_drafter {

// --scope-prior-tokens, --scope-prior-every, --scope-prior-bytes.
void AddScopePriorFlags(Flags& flags, ScopePriorOptions* prior);

struct TrieDrafterService {
  static constexpr rpc::ServiceInfo kInfo = {
      "foretoken-trie-drafter",
      "Drafts from a request's own text and its scope's earlier outputs; keeps "
      "the shared phrase pool.",
      50053, 9103};

  std::string tokenizer;  // path; empty: accepts any tokenizer's tokens
  std::string prior;      // path; empty: none
  std::string redis_url;  // empty: no warm start
  TrieServerOptions server;
  TrieOptions core;
  RedisStoreOptions redis;

  void AddFlags(Flags& flags);
  // Loads tokenizer and prior; does not wait for Redis. `registry` must outlive
  // the server.
  absl::StatusOr<std::unique_ptr<TrieDrafterServer>> Make(
      metrics::Registry& registry) const;
};

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_CONFIG_H_
