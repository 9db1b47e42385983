// WarmStore: what of a scope outlives the process, as the core sees it.
//
// Everything here is a hint: what cannot be stored or loaded is dropped and
// counted, and nobody waits for it.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_WARM_STORE_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_WARM_STORE_H_

#include <functional>
#include <string>
#include <vector>

#include "common/base/digest.h"
#include "common/base/types.h"
#include "common/drafting/draft_session.h"

namespace foretoken::trie_drafter {

// Names a scope of one tokenizer: a hash, so that stores hold no scope's name.
struct ScopeKey {
  Sha256Digest digest;

  static ScopeKey Of(const std::string& cache_scope,
                     const std::string& tokenizer_fingerprint);
  friend bool operator==(const ScopeKey& a, const ScopeKey& b) {
    return a.digest == b.digest;
  }
  template <typename H>
  friend H AbslHashValue(H h, const ScopeKey& key) {
    return H::combine(std::move(h), key.digest);
  }
};

// What was stored of one scope, oldest first.
struct StoredScope {
  std::vector<std::vector<TokenId>> outputs;
  std::vector<Phrase> phrases;
};

// Thread-safe; no method waits for anything outside the process.
class WarmStore {
 public:
  virtual ~WarmStore() = default;

  // `done` is called once, on a thread of the store, with what was found;
  // never where the request could not be taken or answered.
  using Loaded = std::function<void(StoredScope)>;
  virtual void Load(const ScopeKey& key, Loaded done) = 0;

  // Written behind; dropped where the store has too much to do.
  virtual void SaveOutput(const ScopeKey& key, std::vector<TokenId> output) = 0;
  virtual void SavePhrases(const ScopeKey& key,
                           std::vector<Phrase> phrases) = 0;
};

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_WARM_STORE_H_
