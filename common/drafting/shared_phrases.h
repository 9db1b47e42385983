// SharedPhrases: the phrase pools of cache scopes, from which working pools
// start. Thread-safe.
#ifndef FORETOKEN_COMMON_DRAFTING_SHARED_PHRASES_H_
#define FORETOKEN_COMMON_DRAFTING_SHARED_PHRASES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/drafting/draft_session.h"

namespace foretoken {

struct PhraseQuery {
  std::string cache_scope;
  std::string tokenizer_fingerprint;  // raw SHA-256; empty: unknown
  int32_t phrase_tokens = 0;          // length of the phrases; 0: any
  int32_t max_phrases = 0;            // at least 1
};

class SharedPhrases {
 public:
  // Newest first; empty if there are none or the service fails.
  using Done = std::function<void(std::vector<Phrase>)>;

  // A running query. After its destruction Done has run, or never will.
  class Fetch {
   public:
    virtual ~Fetch() = default;
  };

  virtual ~SharedPhrases() = default;

  // Returns at once. Done runs at most once, on any thread, possibly before
  // this returns, in which case it returns nullptr.
  virtual std::unique_ptr<Fetch> GetPhrases(const PhraseQuery& query,
                                            Done done) = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_SHARED_PHRASES_H_
