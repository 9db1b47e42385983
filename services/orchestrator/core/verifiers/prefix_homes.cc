#include "services/orchestrator/core/verifiers/prefix_homes.h"

#include "services/orchestrator/core/rendezvous.h"

namespace foretoken::orchestrator {
namespace {

// Prefixes are noted at 32, 64, 128, ... tokens: a text of n tokens has about
// log2(n / 32) keys, and a match by length is known within a factor of two.
constexpr size_t kFirstTokens = 32;

}  // namespace

PrefixKeys KeysOfPrefixes(absl::string_view scope,
                          absl::Span<const TokenId> text) {
  PrefixKeys keys;
  if (scope.empty()) return keys;
  uint64_t hash = StableHash(scope);
  keys.push_back(hash);
  size_t next = kFirstTokens;
  for (size_t i = 0; i < text.size(); ++i) {
    // Chained: each key depends on all tokens before it, so equal keys mean
    // equal prefixes but for collisions, which only cost a cold cache. Token
    // ids may be 0, hence + 1.
    hash = MixBits(hash + kMixStep * (static_cast<uint64_t>(text[i]) + 1));
    if (i + 1 == next) {
      keys.push_back(hash);
      next *= 2;
    }
  }
  return keys;
}

PrefixHomes::Home PrefixHomes::Find(const PrefixKeys& keys) const {
  // The longest prefix first: most of the text is cached where it was last read
  // whole.
  for (size_t i = keys.size(); i-- > 0;) {
    const auto found = homes_.find(keys[i]);
    if (found != homes_.end()) {
      return {found->second->second, static_cast<int>(i)};
    }
  }
  return {};
}

void PrefixHomes::Note(const PrefixKeys& keys, int member) {
  // The shortest prefix last: it is shared by most texts, and kept longest.
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    const auto found = homes_.find(*key);
    if (found == homes_.end()) {
      entries_.emplace_front(*key, member);
      homes_[*key] = entries_.begin();
    } else {
      found->second->second = member;
      entries_.splice(entries_.begin(), entries_, found->second);
    }
  }
  // Oldest first, whatever their length; at most max_keys_ entries, in the list
  // and the map alike.
  while (homes_.size() > max_keys_) {
    homes_.erase(entries_.back().first);
    entries_.pop_back();
  }
}

}  // namespace foretoken::orchestrator
