// RecycledCandidates: the target's likeliest next tokens after the last two
// tokens, and after the last one, as it saw them latest.
//
// Verification computes the logits of every row, also of those it rejects. Each
// row is a sight of its context: what the target finds likely there says much
// about the next place with the same last tokens.
//
// Representation: a hash table with sets of kWays sights. It doubles when a set
// overflows while over a quarter is in use, up to its limit; otherwise the
// oldest sight of the set makes room. A sight takes 64 bytes; nothing is
// allocated before the first.
//
// Sources: Token Recycling, arXiv:2408.08696, "Adjacency Matrix
// Initialization"; LogitSpec, arXiv:2507.01449; the copy-logit of RACER,
// arXiv:2604.14885. Here the sights are keyed by two tokens as well as by one,
// keep their probabilities, and are one more source of a blended estimate
// (next_token_model.h).
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_DRAFTING_RECYCLED_CANDIDATES_H_
#define FORETOKEN_COMMON_DRAFTING_RECYCLED_CANDIDATES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/mix.h"
#include "common/base/types.h"

namespace foretoken {

class RecycledCandidates {
 public:
  static constexpr int kWidth = 8;
  // Stands for any token before the last one.
  static constexpr TokenId kAny = -1;

  struct Sight {
    std::array<TokenId, kWidth> tokens;   // best first
    std::array<uint16_t, kWidth> shares;  // 65535: all of the probability
    uint32_t order;                       // ascends with time
    uint16_t size;                        // of tokens and shares
    bool own;                             // as in Add

    float share(int i) const {
      return static_cast<float>(shares[i]) * (1.0f / 65535.0f);
    }
    // Share of `token`; 0 if it is none of the candidates.
    float ShareOf(TokenId token) const;
  };

  // Holds at most `max_sights`, rounded up to a power of two, at least 256.
  explicit RecycledCandidates(size_t max_sights);

  // Replaces the sight of a context by `tokens` with `costs` as in
  // CandidateRows, of which the first kWidth that are not negative count. `own`
  // marks a context whose tokens are output of the request.
  void Add(TokenId previous, TokenId last, absl::Span<const TokenId> tokens,
           absl::Span<const uint8_t> costs, bool own);
  // Adds another table's own sights, in the order of their times.
  void AddOwn(const RecycledCandidates& other);

  // The latest sight of a context, or null; valid until the next change.
  const Sight* Find(TokenId previous, TokenId last) const {
    if (sights_.empty()) return nullptr;
    const uint64_t key = KeyOf(previous, last);
    const size_t set = SetOf(key);
    for (size_t way = set; way < set + kWays; ++way) {
      if (keys_[way] == key) return &sights_[way];
    }
    return nullptr;
  }

  bool empty() const { return sights_.empty(); }
  void Clear();
  size_t MemoryBytes() const {
    return keys_.capacity() * sizeof(uint64_t) +
           sights_.capacity() * sizeof(Sight);
  }

 private:
  static constexpr size_t kWays = 4;
  static constexpr size_t kMinSets = 64;
  // A key of no context: no token is -2.
  static constexpr uint64_t kNoKey = 0xfffffffefffffffeu;

  static uint64_t KeyOf(TokenId previous, TokenId last) {
    return uint64_t{static_cast<uint32_t>(previous)} << 32 |
           static_cast<uint32_t>(last);
  }
  // The first way of the key's set.
  size_t SetOf(uint64_t key) const {
    return (key * kMixStep >> shift_) * kWays;
  }
  void Resize(size_t sets);
  // A way for a key that is not in the table: a free one, or the oldest.
  size_t RoomFor(uint64_t key) const;
  // The sight of a context, maybe that of another one before: the caller fills
  // it. Sets order and keeps `own` of the same context.
  Sight& Place(uint64_t key);

  size_t max_sets_;  // a power of two
  int shift_ = 63;   // of a hash to the index of a set
  uint32_t order_ = 0;
  size_t size_ = 0;
  std::vector<uint64_t> keys_;  // [sets, kWays], or empty
  std::vector<Sight> sights_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_RECYCLED_CANDIDATES_H_
