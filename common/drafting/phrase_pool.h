// Phrase pool: short token phrases indexed by their first token, newest first.
//
// Keeps at most `width` (W) phrases of `phrase_tokens` (beta, including the
// first token) per first token; the least recently inserted one is evicted.
// Inserting a phrase again moves it to the front, looking it up does not. Over
// all keys there are at most `max_phrases`, again evicting the least recently
// inserted, so that memory is bounded however many first tokens there are.
//
// Source: Ouroboros, arXiv:2402.13720, section 3 and Algorithm 1.
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_DRAFTING_PHRASE_POOL_H_
#define FORETOKEN_COMMON_DRAFTING_PHRASE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/speculation/modes.h"

namespace foretoken {

class PhrasePool {
 public:
  explicit PhrasePool(const PhrasePoolOptions& options);

  // Inserts `phrase`, [phrase_tokens], at the front, or moves it there.
  void Insert(absl::Span<const TokenId> phrase);

  // Inserts every window of phrase_tokens in `tokens`, oldest first.
  void InsertWindows(absl::Span<const TokenId> tokens);

  // Returns the at most `k` newest phrases that start with `key`, newest first.
  // The spans are valid until the pool changes.
  void Newest(TokenId key, int k,
              std::vector<absl::Span<const TokenId>>& phrases) const;

  // Replaces `phrase` with `refined` in place, keeping its age; both are
  // [phrase_tokens] with the same first token. If `refined` is already in the
  // pool, the newer of the two entries stays. Returns false, without any
  // change, if `phrase` is no longer in the pool.
  bool Refine(absl::Span<const TokenId> phrase,
              absl::Span<const TokenId> refined);

  // Candidate inspiration. `draft`: the draft tokens d_1..d_gamma; `target`:
  // the target's tokens d^_1..d^_(gamma+1), where d^_i follows the context
  // before d_i; `accepted`: l_d, the number of accepted draft tokens. With
  // positions from 1, for i from l_d+2 to gamma-beta+2: if draft and target
  // agree on positions i..i+beta-2, inserts the target's d^_i..d^_(i+beta-1).
  // Returns the number of insertions.
  int Inspire(absl::Span<const TokenId> draft, absl::Span<const TokenId> target,
              int accepted);

  // Candidate refinement of one suffix. `suffix`: the phrase (d_gamma,
  // s_1..s_(beta-1)) as drafted; `after_leaf`: d^_(gamma+1); `target`:
  // [beta-2], the target's tokens after s_1..s_(beta-2). The phrase becomes
  // (d_gamma, after_leaf, target...) in place; see Refine.
  bool RefineSuffix(absl::Span<const TokenId> suffix, TokenId after_leaf,
                    absl::Span<const TokenId> target);

  // Returns all phrases, oldest first, [size() * phrase_tokens]. Inserting them
  // in order into an empty pool with the same options yields an equal pool.
  std::vector<TokenId> Snapshot() const;

  // Warm start: merges a snapshot as if it had been inserted before everything
  // in this pool. InvalidArgument, without any change, names the value if the
  // snapshot's length is not a multiple of phrase_tokens or it contains a
  // negative token.
  absl::Status MergeOlder(absl::Span<const TokenId> snapshot);

  void Clear();

  const PhrasePoolOptions& options() const { return options_; }
  int64_t size() const { return size_; }  // phrases
  size_t MemoryBytes() const;
  size_t MaxBytes() const;

 private:
  static constexpr int32_t kNone = -1;

  // Neighbours in the list of one key and in the list of all phrases.
  struct Links {
    int32_t key_newer, key_older;
    int32_t newer, older;
  };
  struct Key {
    int32_t newest = kNone;
    int32_t oldest = kNone;
    int32_t size = 0;
  };

  absl::Span<const TokenId> Phrase(int32_t slot) const {
    const size_t beta = static_cast<size_t>(options_.phrase_tokens);
    return absl::MakeSpan(tokens_).subspan(slot * beta, beta);
  }
  int32_t FindIn(const Key& key, absl::Span<const TokenId> phrase) const;
  int32_t NewSlot();
  void PushFront(Key& key, int32_t slot);
  void Detach(Key& key, int32_t slot);
  void Remove(int32_t slot);

  const PhrasePoolOptions options_;
  std::vector<TokenId> tokens_;  // [slots, phrase_tokens]
  std::vector<Links> links_;     // [slots]
  absl::flat_hash_map<TokenId, Key> keys_;
  int32_t newest_ = kNone;
  int32_t oldest_ = kNone;
  int32_t free_ = kNone;  // chained by `older`
  int64_t size_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_PHRASE_POOL_H_
