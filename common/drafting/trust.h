// Trust: how strongly the evidence of each source, at each match length,
// outweighs weaker evidence. Learned from what the target wrote.
//
// Evidence comes in links, chained from the weakest to the strongest: P <- (1 -
// k) P + k q, where q is the share that the link gives a token. The weight k
// follows from the link's odds o (from its counts) and the trust factor g of
// its kind: k = g o / (1 + g o). After every committed token each g takes a
// gradient step that increases log P of that token. g is the product of a
// factor shared by all requests, which moves slowly, and a factor of this
// request, which moves fast and starts at 1.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_DRAFTING_TRUST_H_
#define FORETOKEN_COMMON_DRAFTING_TRUST_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/drafting/recycled_candidates.h"
#include "common/drafting/window_trie.h"

namespace foretoken {

enum class Source : int { kRequest = 0, kHistory = 1 };
inline constexpr int kCountSources = 2;

// A scope's own prior lies over the one that all scopes share.
enum class PriorLayer : int { kShared = 0, kScope = 1 };
inline constexpr int kPriorLayers = 2;

// A kind of evidence: an index into the shared factors and one into the
// request's.
struct TrustKind {
  uint16_t shared;
  uint16_t fast;

  // A context of `length` >= 1 tokens in a prior, classified by its backoff
  // code.
  static TrustKind Prior(PriorLayer layer, int length, uint8_t backoff_code);
  // A match of 1 <= length < WindowTrie::kDepth tokens with `total` occurrences
  // of `distinct` continuations.
  static TrustKind Counts(Source source, int length, uint32_t total,
                          uint32_t distinct);
  // A text position whose last `length` tokens match, after `misses` wrong
  // ones.
  static TrustKind Copy(Source source, uint32_t length, uint32_t misses);
  // A sight of the target's candidates after the last `length` tokens, 1 or 2,
  // the best of which has `share` of their probability.
  static TrustKind Recycled(Source source, int length, float share);
};

// One link of the chain, for one token.
struct TrustLink {
  TrustKind kind;
  float weight;  // k
  float share;   // q of the token
};

// Factors shared by the requests of a scope. Initialised from trust_start.h,
// those of a scope's prior as those of the shared one.
class SharedTrust {
 public:
  static constexpr int kPriorLengths = 5;
  static constexpr int kPriorClasses = 10;
  static constexpr int kCountLengths = WindowTrie::kDepth - 1;
  static constexpr int kCountClasses = 7;
  static constexpr int kCopyClasses = 16;
  static constexpr int kRecycledLengths = 2;
  static constexpr int kRecycledClasses = 8;
  static constexpr int kKinds =
      kPriorLayers * kPriorLengths * kPriorClasses +
      kCountSources * (kCountLengths * kCountClasses + kCopyClasses +
                       kRecycledLengths * kRecycledClasses);

  SharedTrust() { Reset(); }
  void Reset();
  float& operator[](size_t kind) { return factors_[kind]; }
  float operator[](size_t kind) const { return factors_[kind]; }

 private:
  std::array<float, kKinds> factors_;
};

class Trust {
 public:
  static constexpr int kFastKinds =
      kPriorLayers * SharedTrust::kPriorLengths +
      kCountSources *
          (SharedTrust::kCountLengths + 2 + SharedTrust::kRecycledLengths);

  // `shared` must outlive the object.
  explicit Trust(SharedTrust& shared) : shared_(shared) { StartRequest(); }
  void StartRequest() { fast_.fill(1.0f); }

  float Factor(TrustKind kind) const {
    return shared_[kind.shared] * fast_[kind.fast];
  }

  // Learns from one token; `base` is its probability below all links. `links`:
  // strongest first, at most kMaxLinks. Returns its probability under the
  // chain.
  float Learn(absl::Span<const TrustLink> links, float base);

  // Two copies, three matches of both count sources, two candidates of both,
  // and all lengths of two priors.
  static constexpr int kMaxLinks = 22;

 private:
  SharedTrust& shared_;
  std::array<float, kFastKinds> fast_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_TRUST_H_
