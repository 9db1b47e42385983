// The model behind fused drafting: the distribution of the next token, blended
// from the request's own text, the history of earlier outputs, a static prior,
// and the target's candidates after earlier rows.
//
// A Cursor is a position in a (possibly drafted) text: for every source, the
// contexts that match its last tokens. Advancing a cursor by one token costs
// one look-up per match; whole contexts are never hashed. The evidence at a
// cursor forms a chain of links, strongest first: text copies, the longer one
// first; then, by match length from the longest, the request's counts, the
// history's counts, those of the scope's prior and of the shared one; the
// recycled candidates stand among them: those after two tokens before matches
// of three, those after one token before matches of one. Each link outweighs
// weaker evidence by its learned trust (trust.h).
//
// Owned by one thread; the sources are borrowed.
#ifndef FORETOKEN_COMMON_DRAFTING_NEXT_TOKEN_MODEL_H_
#define FORETOKEN_COMMON_DRAFTING_NEXT_TOKEN_MODEL_H_

#include <array>
#include <bitset>
#include <cstdint>
#include <vector>

#include "common/base/types.h"
#include "common/drafting/recycled_candidates.h"
#include "common/drafting/static_prior.h"
#include "common/drafting/trust.h"
#include "common/drafting/window_trie.h"
#include "common/speculation/drafter_id.h"

namespace foretoken {

// A position in a source's text whose last tokens equal those of the cursor.
struct CopyState {
  uint32_t position = 0;  // position of the last matching token
  uint32_t length = 0;    // matching tokens; 0: no copy
  uint32_t misses = 0;    // wrong tokens that the copy has survived
};

struct Cursor {
  // Continuation lists of a prior, [length - 1]: those after the last `length`
  // tokens. Looked up on first use from the previous cursor; many never are.
  struct PriorLists {
    std::array<StaticPrior::List, SharedTrust::kPriorLengths> lists{};
    uint8_t known = 0;  // bit length - 1
  };
  mutable std::array<PriorLists, kPriorLayers> priors{};
  const Cursor* before = nullptr;  // needed while a prior's `known` has gaps
  TokenId token = -1;              // the last token
  TokenId previous = -1;           // the one before

  struct Matches {
    std::array<WindowTrie::Context, SharedTrust::kCountLengths> contexts{};
    CopyState copy;
  };
  std::array<Matches, kCountSources> sources{};
};

// Candidate tokens with probabilities accumulated over several links.
class Candidates {
 public:
  struct Candidate {
    TokenId token;
    float probability;
    float largest;   // of the shares that it is the sum of
    DrafterId part;  // whose share that is
  };
  Candidates() : slots_(kSlots) {}
  void Clear();
  // Adds the share of `part` to the token's probability and returns the sum.
  // New tokens beyond kMaxCandidates are dropped.
  float Add(TokenId token, float share, DrafterId part);
  const std::vector<Candidate>& all() const { return all_; }

  static constexpr uint32_t kMaxCandidates = 192;

 private:
  static constexpr uint32_t kSlots = 512;  // power of two, over twice the max
  struct Slot {
    TokenId token = 0;
    uint32_t epoch = 0;  // slot is in use if equal to epoch_
    uint32_t index = 0;
  };
  std::vector<Slot> slots_;
  std::vector<Candidate> all_;
  uint32_t epoch_ = 1;
};

class NextTokenModel {
 public:
  // The sources that the model blends. Any may be null; all must outlive it.
  struct Evidence {
    const StaticPrior* prior = nullptr;  // shared by all scopes
    const WindowTrie* request = nullptr;
    const WindowTrie* history = nullptr;
    const RecycledCandidates* recycled = nullptr;  // in the request
    const RecycledCandidates* recycled_history = nullptr;
    const StaticPrior* scope_prior = nullptr;
  };
  NextTokenModel(const Evidence& evidence, Trust* trust)
      : priors_{evidence.prior, evidence.scope_prior},
        sources_{evidence.request, evidence.history},
        recycled_{evidence.recycled, evidence.recycled_history},
        trust_(trust) {}

  // Forgets which tokens the request has used.
  void StartRequest() { seen_.reset(); }
  void MarkSeen(TokenId token) { seen_.set(SeenIndex(token)); }

  // Sets `to` to `from` advanced by `token`. `to` refers to `from`, which must
  // stay alive and unchanged.
  void Advance(const Cursor& from, TokenId token, Cursor& to) const;
  // Makes the cursor independent of the previous one.
  void Settle(Cursor& cursor) const;
  // As Advance, for a committed token, from which the trust factors learn.
  // Leaves the request's own part to Follow.
  void LearnAndAdvance(const Cursor& from, TokenId token, Cursor& to);
  // Sets the request's part of the cursor after the token was appended to the
  // request's text: its open contexts. `latest` is the result of Append.
  void Follow(const Cursor& from, uint32_t latest, Cursor& to) const;

  // Fills `out` with candidate next tokens, unordered. Exact for tokens of
  // probability `cutoff` or more, approximate below.
  void Predict(const Cursor& cursor, float cutoff, Candidates& out) const;

 private:
  // Indices of one token in the count lists at a cursor.
  struct Found {
    std::array<std::array<int, SharedTrust::kCountLengths>, kCountSources>
        counts;
  };
  static constexpr size_t kSeenBits = 1 << 16;
  static size_t SeenIndex(TokenId token) {
    return static_cast<uint32_t>(token) % kSeenBits;
  }

  template <typename Visitor>
  void VisitLinks(const Cursor& cursor, Visitor& visit) const;
  template <typename Visitor>
  bool VisitRecycled(const Cursor& cursor, int length, Visitor& visit) const;
  const StaticPrior* prior(PriorLayer layer) const {
    return priors_[static_cast<int>(layer)];
  }
  const StaticPrior::List& PriorList(PriorLayer layer, const Cursor& cursor,
                                     int length) const;
  // Both cover the sources from `first` on.
  void Find(int first, const Cursor& from, TokenId token, Found& found) const;
  void Move(int first, const Cursor& from, TokenId token, const Found& found,
            Cursor& to) const;
  CopyState MoveCopy(const WindowTrie& text, const CopyState& from,
                     TokenId token, uint32_t latest) const;
  float Boost(TokenId token) const;

  std::array<const StaticPrior*, kPriorLayers> priors_;  // by PriorLayer
  std::array<const WindowTrie*, kCountSources> sources_;
  std::array<const RecycledCandidates*, kCountSources> recycled_;
  Trust* trust_;
  std::bitset<kSeenBits> seen_;  // tokens modulo 2^16: a hint
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_NEXT_TOKEN_MODEL_H_
