// The model behind fused drafting: what may come next, blended from the
// request's own text, the history of earlier outputs and a static prior.
//
// A Cursor is a place in a (possibly drafted) text: for every source the
// contexts that its last tokens match. Moving a cursor by one token costs one
// look-up per match, never a hash of a whole context. The links of evidence at
// a cursor, strongest first, are: text copies, the longer one first; then by
// match length, longest first, the request's counts, the history's, the
// prior's. Each outweighs what is weaker by its learned trust (trust.h).
//
// Owned by one thread; the sources are borrowed.
#ifndef FORETOKEN_COMMON_DRAFTING_NEXT_TOKEN_MODEL_H_
#define FORETOKEN_COMMON_DRAFTING_NEXT_TOKEN_MODEL_H_

#include <array>
#include <bitset>
#include <cstdint>
#include <vector>

#include "common/base/types.h"
#include "common/drafting/static_prior.h"
#include "common/drafting/trust.h"
#include "common/drafting/window_trie.h"
#include "common/speculation/drafter_id.h"

namespace foretoken {

// A place in a source's text whose last tokens are those of the cursor.
struct CopyState {
  uint32_t position = 0;  // of the last matching token
  uint32_t length = 0;    // tokens that match; 0: no copy
  uint32_t misses = 0;    // wrong tokens that the copy has survived
};

struct Cursor {
  // Lists of the prior, [length - 1]: after the last `length` tokens. Found
  // when first asked for, from the cursor before; many never are.
  mutable std::array<StaticPrior::List, SharedTrust::kPriorLengths> prior{};
  mutable uint8_t prior_known = 0;  // bit length - 1
  const Cursor* before = nullptr;   // where prior_known has gaps
  TokenId token = -1;               // the last one

  struct Matches {
    std::array<WindowTrie::Context, SharedTrust::kCountLengths> contexts{};
    CopyState copy;
  };
  std::array<Matches, kCountSources> sources{};
};

// Tokens and their probabilities, gathered from several links.
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
  // Adds the share of `part` to what the token has, and gives its sum. Beyond
  // kMaxCandidates new tokens are dropped.
  float Add(TokenId token, float share, DrafterId part);
  const std::vector<Candidate>& all() const { return all_; }

  static constexpr uint32_t kMaxCandidates = 192;

 private:
  static constexpr uint32_t kSlots = 512;  // a power of two, over twice the max
  struct Slot {
    TokenId token = 0;
    uint32_t epoch = 0;  // of Clear; others are free
    uint32_t index = 0;
  };
  std::vector<Slot> slots_;
  std::vector<Candidate> all_;
  uint32_t epoch_ = 1;
};

class NextTokenModel {
 public:
  // Any source may be null. All outlive the object.
  NextTokenModel(const StaticPrior* prior, const WindowTrie* request,
                 const WindowTrie* history, Trust* trust)
      : prior_(prior), sources_{request, history}, trust_(trust) {}

  // Forgets which tokens the request has used.
  void StartRequest() { seen_.reset(); }
  void MarkSeen(TokenId token) { seen_.set(SeenIndex(token)); }

  // The cursor one token further; it refers to `from`, which must stay.
  void Advance(const Cursor& from, TokenId token, Cursor& to) const;
  // Makes the cursor independent of the one before it.
  void Settle(Cursor& cursor) const;
  // The same for a committed token, from which trust learns; the request's part
  // is left to Follow.
  void LearnAndAdvance(const Cursor& from, TokenId token, Cursor& to);
  // After the request's text took the token: its part of the cursor, which is
  // what the text itself has open. `latest` is what Append gave.
  void Follow(const Cursor& from, uint32_t latest, Cursor& to) const;

  // Fills `out` with the tokens that may follow, unordered; complete for those
  // of probability `cutoff` or more, approximate below.
  void Predict(const Cursor& cursor, float cutoff, Candidates& out) const;

 private:
  // Where one token stands in the counts at a cursor.
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
  const StaticPrior::List& PriorList(const Cursor& cursor, int length) const;
  // Of the sources from `first` on.
  void Find(int first, const Cursor& from, TokenId token, Found& found) const;
  void Move(int first, const Cursor& from, TokenId token, const Found& found,
            Cursor& to) const;
  CopyState MoveCopy(const WindowTrie& text, const CopyState& from,
                     TokenId token, uint32_t latest) const;
  float Boost(TokenId token) const;

  const StaticPrior* prior_;
  std::array<const WindowTrie*, kCountSources> sources_;
  Trust* trust_;
  std::bitset<kSeenBits> seen_;  // tokens modulo 2^16: a hint
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_NEXT_TOKEN_MODEL_H_
