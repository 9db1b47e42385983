// Phrase pool: short token phrases kept by their first token, newest first.
//
// At most `width` (W) phrases of `phrase_tokens` (beta, the first token
// included) per first token, least recently inserted out; a repeat moves to the
// front, a look-up does not. Over all keys at most `max_phrases`, the least
// recently inserted of all out first, so that memory is bounded however many
// first tokens there are.
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

  // `phrase`: [phrase_tokens]. Puts it in front, or moves it there.
  void Insert(absl::Span<const TokenId> phrase);

  // Every window of phrase_tokens in `tokens`, oldest first.
  void InsertWindows(absl::Span<const TokenId> tokens);

  // The at most `k` newest phrases that start with `key`, newest first. The
  // spans are valid until the pool is changed.
  void Newest(TokenId key, int k,
              std::vector<absl::Span<const TokenId>>& phrases) const;

  // Turns `phrase` into `refined` in place, its age unchanged; both
  // [phrase_tokens] and of the same first token. Where `refined` is in the pool
  // already, the newer of the two places stays. False when `phrase` has left
  // the pool: nothing is changed then.
  bool Refine(absl::Span<const TokenId> phrase,
              absl::Span<const TokenId> refined);

  // Candidate inspiration. `draft`: the draft's tokens d_1..d_gamma;
  // `target`: the target's own tokens d^_1..d^_(gamma+1), where d^_i answers to
  // the context before d_i; `accepted`: l_d, draft tokens accepted. With
  // positions from 1, for i from l_d+2 to gamma-beta+2: where draft and target
  // agree on positions i..i+beta-2, the target's d^_i..d^_(i+beta-1) is
  // inserted. Returns how many were.
  int Inspire(absl::Span<const TokenId> draft, absl::Span<const TokenId> target,
              int accepted);

  // Candidate refinement of one suffix. `suffix`: the phrase
  // (d_gamma, s_1..s_(beta-1)) as it was drafted; `after_leaf`: d^_(gamma+1);
  // `target`: [beta-2], the target's tokens after s_1..s_(beta-2). The phrase
  // becomes (d_gamma, after_leaf, target...) in place; as Refine.
  bool RefineSuffix(absl::Span<const TokenId> suffix, TokenId after_leaf,
                    absl::Span<const TokenId> target);

  // All phrases, oldest first, [size() * phrase_tokens]: inserted one by one
  // into an empty pool of the same options they make an equal pool.
  std::vector<TokenId> Snapshot() const;

  // Warm start: takes in a snapshot as if it had been inserted before
  // everything this pool holds. InvalidArgument, naming the value, for a
  // snapshot whose length is no multiple of phrase_tokens or that holds a
  // negative token; nothing is changed then.
  absl::Status MergeOlder(absl::Span<const TokenId> snapshot);

  void Clear();

  const PhrasePoolOptions& options() const { return options_; }
  int64_t size() const { return size_; }  // phrases
  size_t MemoryBytes() const;
  size_t MaxBytes() const;

 private:
  static constexpr int32_t kNone = -1;

  // Neighbours in the list of one key and in the list of all, newest first.
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
