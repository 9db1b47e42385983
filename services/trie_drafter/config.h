// The trie drafter's configuration: one struct made of its parts' options.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_CONFIG_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_CONFIG_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "services/trie_drafter/server.h"

namespace foretoken::trie_drafter {

// What a trie drafter is, without listeners.
struct TrieDrafterParts {
  std::string tokenizer;  // path; empty: takes any tokenizer's tokens
  std::string prior;      // path; empty: none
  std::string redis_url;  // empty: no warm start
  TrieServerOptions server;
  TrieOptions core;
  RedisStoreOptions redis;
};

struct TrieDrafterConfig {
  rpc::ServerOptions rpc;
  metrics::ExposerOptions metrics;
  TrieDrafterParts parts;
  std::string effective;  // to be logged

  static absl::StatusOr<TrieDrafterConfig> Parse(int argc,
                                                 const char* const* argv);
};

// The flags of `parts`: shared with whoever runs a trie drafter inside its own
// process.
void AddTrieDrafterFlags(Flags& flags, TrieDrafterParts* parts);

// Loads tokenizer and prior; Redis need not be there. `registry` must outlive
// the server.
absl::StatusOr<std::unique_ptr<TrieDrafterServer>> MakeTrieDrafterServer(
    TrieDrafterParts parts, metrics::Registry& registry);

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_CONFIG_H_
