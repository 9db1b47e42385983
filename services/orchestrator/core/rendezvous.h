// Rendezvous hashing: which of several members owns a key.
//
// Every member has a score for every key, and the one with the highest score
// owns the key. A member that joins takes its share of keys from all others,
// and one that leaves gives its keys to all others; no other key moves. Scores
// depend on names alone, so all orchestrators agree.
//
// Source: Thaler and Ravishankar, "Using name-based mappings to increase hit
// rates", IEEE/ACM Transactions on Networking 6(1), 1998.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_RENDEZVOUS_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_RENDEZVOUS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/base/mix.h"

namespace foretoken::orchestrator {

// The same in every process, unlike absl::Hash. Not for secrets.
constexpr uint64_t StableHash(absl::string_view text, uint64_t seed = 0) {
  uint64_t hash = MixBits(seed + kMixStep * (text.size() + 1));
  for (const char byte : text) {
    hash = MixBits(hash + kMixStep * (static_cast<unsigned char>(byte) + 1));
  }
  return hash;
}

constexpr uint64_t RendezvousScore(absl::string_view member,
                                   absl::string_view key) {
  return StableHash(key, StableHash(member));
}

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_RENDEZVOUS_H_
