#include "common/drafting/next_token_model.h"

#include <algorithm>
#include <cmath>

#include "common/drafting/fused_tuning.h"

namespace foretoken {
namespace {

using namespace fused_tuning;  // NOLINT: constants only

constexpr int kLengths = SharedTrust::kCountLengths;
// Probability of a token in none of the lists; its exact value affects no
// draft.
constexpr float kUnknownProbability = 1e-6f;
// Even a context that lists everything leaves this much to other tokens.
constexpr float kMaxListed = 0.999f;

// Match length whose counts the candidates after two tokens precede. Measured
// on SmolLM2-135M-Instruct, 24 Spec-Bench questions: accept length 3.02 before
// the matches of three tokens, 2.97 before those of two.
constexpr int kPairRank = 3;

const Source kSources[] = {Source::kRequest, Source::kHistory};

// The stronger one first: what the target wrote for a scope says more about its
// next output than ordinary text does.
const PriorLayer kLayers[] = {PriorLayer::kScope, PriorLayer::kShared};

struct Link {
  TrustKind kind;
  float weight;  // k
};

// Visitors of VisitLinks have one method for each form of evidence:
//   bool Copy(Link, Source, TokenId next);
//   bool Counts(Link, Source, int length, const Continuations&);
//   bool Prior(Link, PriorLayer, int length, const StaticPrior::List&);
//   bool Recycled(Link, const RecycledCandidates::Sight&);
// Returning false ends the visit.

DrafterId PartOf(Source source) {
  return source == Source::kRequest ? DrafterId::kFusedRequest
                                    : DrafterId::kFusedHistory;
}

float Weigh(float odds) { return odds / (1.0f + odds); }

}  // namespace

void Candidates::Clear() {
  all_.clear();
  if (++epoch_ == 0) {  // wrapped around: stale slots could look current
    std::fill(slots_.begin(), slots_.end(), Slot{});
    epoch_ = 1;
  }
}

float Candidates::Add(TokenId token, float share, DrafterId part) {
  // Multiplicative hashing: the top 9 bits index the 512 slots.
  uint32_t index = (static_cast<uint32_t>(token) * 2654435769u) >> 23;
  static_assert(kSlots == 1u << 9);
  for (;; index = (index + 1) % kSlots) {
    Slot& slot = slots_[index];
    // At most 192 of 512 slots are in use, so the probe always ends.
    if (slot.epoch != epoch_) {
      if (all_.size() == kMaxCandidates) return 0.0f;
      slot = {token, epoch_, static_cast<uint32_t>(all_.size())};
      all_.push_back({token, share, share, part});
      return share;
    }
    if (slot.token == token) {
      Candidate& candidate = all_[slot.index];
      if (share > candidate.largest) {
        candidate.largest = share;
        candidate.part = part;
      }
      return candidate.probability += share;
    }
  }
}

float NextTokenModel::Boost(TokenId token) const {
  return seen_.test(SeenIndex(token)) ? kSeenBoost : kUnseenBoost;
}

// --- The chain ---------------------------------------------------------------

template <typename Visitor>
bool NextTokenModel::VisitRecycled(const Cursor& cursor, int length,
                                   Visitor& visit) const {
  const TokenId previous =
      length == 1 ? RecycledCandidates::kAny : cursor.previous;
  for (int s = 0; s < kCountSources; ++s) {
    if (recycled_[s] == nullptr) continue;
    const RecycledCandidates::Sight* const sight =
        recycled_[s]->Find(previous, cursor.token);
    if (sight == nullptr) continue;
    const TrustKind kind =
        TrustKind::Recycled(kSources[s], length, sight->share(0));
    if (!visit.Recycled({kind, Weigh(trust_->Factor(kind))}, *sight)) {
      return false;
    }
  }
  return true;
}

template <typename Visitor>
void NextTokenModel::VisitLinks(const Cursor& cursor, Visitor& visit) const {
  // Copies outweigh counts; the longer one is the stronger link.
  const CopyState& request = cursor.sources[0].copy;
  const CopyState& history = cursor.sources[1].copy;
  const int first = history.length > request.length ? 1 : 0;
  for (int s : {first, 1 - first}) {
    const CopyState& copy = cursor.sources[s].copy;
    if (copy.length == 0 || !sources_[s]->Holds(copy.position + 1)) continue;
    const TokenId next = sources_[s]->TokenAt(copy.position + 1);
    if (next < 0) continue;  // the copied sequence ended here
    const TrustKind kind =
        TrustKind::Copy(kSources[s], copy.length, copy.misses);
    if (!visit.Copy({kind, Weigh(trust_->Factor(kind))}, kSources[s], next)) {
      return;
    }
  }
  // Then by descending match length; kMatchesPerSource of each count source.
  std::array<int, kCountSources> left{kMatchesPerSource, kMatchesPerSource};
  for (int length = kLengths; length >= 1; --length) {
    // The target's own candidates after two tokens say more than a match of
    // three that was seen once.
    if (length == kPairRank && !VisitRecycled(cursor, 2, visit)) return;
    if (length == 1 && !VisitRecycled(cursor, 1, visit)) return;
    for (int s = 0; s < kCountSources; ++s) {
      const WindowTrie::Context context =
          cursor.sources[s].contexts[length - 1];
      if (context == WindowTrie::kNoContext || left[s] == 0) continue;
      const WindowTrie::Continuations list = sources_[s]->Of(context);
      if (list.size == 0) continue;
      --left[s];
      const TrustKind kind =
          TrustKind::Counts(kSources[s], length, list.total, list.size);
      // k = g T / (g T + K d): the confidence of fused_tuning.h, with the odds
      // scaled by the trust factor.
      const float doubt = s == 0 ? kRequestDoubt : kHistoryDoubt;
      const float trusted =
          trust_->Factor(kind) * static_cast<float>(list.total);
      const float weight =
          trusted / (trusted + doubt * static_cast<float>(list.size));
      if (!visit.Counts({kind, weight}, kSources[s], length, list)) return;
    }
    for (const PriorLayer layer : kLayers) {
      if (prior(layer) == nullptr || length >= prior(layer)->order()) continue;
      const StaticPrior::List& list = PriorList(layer, cursor, length);
      if (list.size == 0) continue;
      const TrustKind kind = TrustKind::Prior(layer, length, list.backoff_code);
      // The odds of a prior's list are its own: listed over backoff mass.
      const float listed = std::min(1.0f - list.backoff, kMaxListed);
      const float trusted = trust_->Factor(kind) * listed;
      const float weight = trusted / (trusted + 1.0f - listed);
      if (!visit.Prior({kind, weight}, layer, length, list)) return;
    }
  }
}

void NextTokenModel::Predict(const Cursor& cursor, float cutoff,
                             Candidates& out) const {
  struct Gather {
    const NextTokenModel& model;
    Candidates& out;
    float cutoff;
    float floor;        // smaller contributions are skipped
    float left = 1.0f;  // share of the chain not yet assigned
    float best = 0.0f;  // highest probability of a candidate so far

    bool Take(const Link& link) {
      left *= 1.0f - link.weight;
      // Stop if the rest is negligible, or if no candidate can reach the
      // cutoff.
      return left > floor && best + left >= cutoff;
    }
    void Add(TokenId token, float share, DrafterId part) {
      best = std::max(best, out.Add(token, share, part));
    }
    bool Copy(const Link& link, Source source, TokenId next) {
      Add(next, left * link.weight, PartOf(source));
      return Take(link);
    }
    bool Counts(const Link& link, Source source, int,
                const WindowTrie::Continuations& list) {
      const DrafterId part = PartOf(source);
      const float unit = left * link.weight / static_cast<float>(list.total);
      const uint32_t end = std::min(list.size, kMaxContinuations);
      // Lists are sorted by descending count, so stop at the first small share.
      for (uint32_t i = 0; i < end; ++i) {
        const float share = unit * static_cast<float>(list.counts[i]);
        if (share < floor) break;
        Add(static_cast<TokenId>(list.tokens[i]), share, part);
      }
      return Take(link);
    }
    bool Prior(const Link& link, PriorLayer layer, int,
               const StaticPrior::List& list) {
      // Listed shares are renormalised: the backoff mass belongs to the weaker
      // links.
      const StaticPrior& prior = *model.prior(layer);
      const float listed = std::min(1.0f - list.backoff, kMaxListed);
      const float unit = left * link.weight / std::max(listed, 1e-6f);
      const uint32_t end = list.first + std::min(list.size, StaticPrior::kHead);
      for (uint32_t entry = list.first; entry < end; ++entry) {
        const float share = unit * prior.ProbabilityOf(entry);
        if (share < floor) break;
        const TokenId token = prior.TokenOf(entry);
        Add(token, share * model.Boost(token), DrafterId::kFusedPrior);
      }
      return Take(link);
    }
    bool Recycled(const Link& link, const RecycledCandidates::Sight& sight) {
      const float unit = left * link.weight;
      for (int i = 0; i < sight.size; ++i) {
        const float share = unit * sight.share(i);
        if (share < floor) break;
        Add(sight.tokens[i], share, DrafterId::kFusedRecycled);
      }
      return Take(link);
    }
  };
  out.Clear();
  Gather gather{*this, out, cutoff, std::max(cutoff * kNegligible, 1e-5f)};
  VisitLinks(cursor, gather);
}

// The list of a context of `length` tokens is found from that of its first
// length - 1 tokens, at the previous cursor: the entry of the last token there
// leads to it.
const StaticPrior::List& NextTokenModel::PriorList(PriorLayer layer,
                                                   const Cursor& cursor,
                                                   int length) const {
  const StaticPrior& of = *prior(layer);
  Cursor::PriorLists& at = cursor.priors[static_cast<int>(layer)];
  StaticPrior::List& list = at.lists[length - 1];
  const uint8_t bit = static_cast<uint8_t>(1u << (length - 1));
  if ((at.known & bit) != 0) return list;
  at.known |= bit;
  if (length == 1) {
    list = of.AfterToken(cursor.token);
    return list;
  }
  list = StaticPrior::List{};
  if (cursor.before == nullptr) return list;
  const StaticPrior::List& shorter =
      PriorList(layer, *cursor.before, length - 1);
  if (shorter.size == 0) return list;
  const int64_t entry = of.Find(shorter, cursor.token);
  if (entry >= 0) list = of.AfterEntry(static_cast<uint32_t>(entry));
  return list;
}

// A committed cursor outlives the one before it, so all its lists are needed
// now.
void NextTokenModel::Settle(Cursor& cursor) const {
  for (const PriorLayer layer : kLayers) {
    const int order = prior(layer) == nullptr ? 0 : prior(layer)->order();
    for (int length = 1; length < order; ++length) {
      PriorList(layer, cursor, length);
    }
  }
  cursor.before = nullptr;
}

// --- Moving ------------------------------------------------------------------

void NextTokenModel::Find(int first, const Cursor& from, TokenId token,
                          Found& found) const {
  for (int s = first; s < kCountSources; ++s) {
    found.counts[s].fill(-1);
    // A continuation of a longer context is also one of the shorter contexts,
    // unless a full one evicted it. So a miss in a context that is not full
    // ends the search.
    for (int l = 0; l < kLengths; ++l) {
      const WindowTrie::Context context = from.sources[s].contexts[l];
      if (context == WindowTrie::kNoContext) continue;
      const WindowTrie::Continuations list = sources_[s]->Of(context);
      const int index = list.Find(token);
      if (index < 0 && list.size < WindowTrie::kMaxContinuations) break;
      found.counts[s][l] = index;
    }
  }
}

void NextTokenModel::Move(int first, const Cursor& from, TokenId token,
                          const Found& found, Cursor& to) const {
  for (Cursor::PriorLists& of : to.priors) of.known = 0;
  to.before = &from;
  to.previous = from.token;
  to.token = token;
  for (int s = first; s < kCountSources; ++s) {
    if (sources_[s] == nullptr) continue;
    const WindowTrie& text = *sources_[s];
    auto& contexts = to.sources[s].contexts;
    contexts.fill(WindowTrie::kNoContext);
    // One more token of context: link l leads from length l+1 to l+2.
    contexts[0] = text.Root(token);
    uint32_t latest = WindowTrie::kNoPosition;
    for (int l = 0; l < kLengths; ++l) {
      if (found.counts[s][l] < 0) continue;
      const uint32_t link =
          text.Of(from.sources[s].contexts[l]).links[found.counts[s][l]];
      if (l + 1 < kLengths) {
        contexts[l + 1] = link;
      } else {
        latest = link;
      }
    }
    to.sources[s].copy = MoveCopy(text, from.sources[s].copy, token, latest);
  }
}

// `latest`: end of the previous occurrence of the last kDepth tokens, or
// kNoPosition.
CopyState NextTokenModel::MoveCopy(const WindowTrie& text,
                                   const CopyState& from, TokenId token,
                                   uint32_t latest) const {
  const CopyState fresh{latest, WindowTrie::kDepth, 0};
  const bool found = latest != WindowTrie::kNoPosition;
  const TokenId expected = from.length != 0 && text.Holds(from.position + 1)
                               ? text.TokenAt(from.position + 1)
                               : TokenId{-1};
  // In order: no copy to continue; the copy is right; a new match replaces a
  // copy that failed; a long copy survives a wrong token.
  if (expected < 0) return found ? fresh : CopyState{};
  if (expected == token) {
    if (found && from.misses != 0) return fresh;
    CopyState next{from.position + 1, std::min(from.length + 1, kMaxCopyLength),
                   from.misses};
    if (next.length >= kCopyHealed) next.misses = 0;
    return next;
  }
  if (found) return fresh;
  if (from.length < kMinCopyToRecover || from.misses == kMaxCopyMisses) {
    return CopyState{};
  }
  return {from.position + 1, 1, from.misses + 1};
}

void NextTokenModel::Advance(const Cursor& from, TokenId token,
                             Cursor& to) const {
  Found found;
  Find(0, from, token, found);
  Move(0, from, token, found, to);
}

void NextTokenModel::Follow(const Cursor& from, uint32_t latest,
                            Cursor& to) const {
  constexpr int s = static_cast<int>(Source::kRequest);
  const WindowTrie& text = *sources_[s];
  for (int length = 1; length <= kLengths; ++length) {
    to.sources[s].contexts[length - 1] = text.Open(length);
  }
  to.sources[s].copy = MoveCopy(text, from.sources[s].copy, to.token, latest);
}

void NextTokenModel::LearnAndAdvance(const Cursor& from, TokenId token,
                                     Cursor& to) {
  Found found;
  // The request's counts are looked up in VisitLinks, before the token enters
  // the request's text.
  constexpr int kFirst = static_cast<int>(Source::kHistory);
  Find(kFirst, from, token, found);

  struct Collect {
    const NextTokenModel& model;
    const Found& found;
    TokenId token;
    Cursor& to;
    std::array<TrustLink, Trust::kMaxLinks> links;
    size_t size = 0;

    bool Add(const Link& link, float share) {
      links[size++] = {link.kind, link.weight, share};
      return size < links.size();
    }
    bool Copy(const Link& link, Source, TokenId next) {
      return Add(link, next == token ? 1.0f : 0.0f);
    }
    bool Counts(const Link& link, Source source, int length,
                const WindowTrie::Continuations& list) {
      const int index = source == Source::kRequest
                            ? list.Find(token)
                            : found.counts[kFirst][length - 1];
      if (index < 0) return Add(link, 0.0f);
      return Add(link, static_cast<float>(list.counts[index]) /
                           static_cast<float>(list.total));
    }
    // This look-up also yields the list of the next longer context, which the
    // new cursor needs.
    bool Prior(const Link& link, PriorLayer layer, int length,
               const StaticPrior::List& list) {
      const StaticPrior& prior = *model.prior(layer);
      const int64_t entry = prior.Find(list, token);
      if (length + 1 < prior.order()) {
        Cursor::PriorLists& next = to.priors[static_cast<int>(layer)];
        next.lists[length] =
            entry < 0 ? StaticPrior::List{}
                      : prior.AfterEntry(static_cast<uint32_t>(entry));
        next.known |= static_cast<uint8_t>(1u << length);
      }
      if (entry < 0) return Add(link, 0.0f);
      const float listed = std::min(1.0f - list.backoff, kMaxListed);
      return Add(link, prior.ProbabilityOf(static_cast<uint32_t>(entry)) /
                           std::max(listed, 1e-6f) * model.Boost(token));
    }
    bool Recycled(const Link& link, const RecycledCandidates::Sight& sight) {
      return Add(link, sight.ShareOf(token));
    }
  };
  Move(kFirst, from, token, found, to);
  Collect collect{*this, found, token, to, {}, 0};
  VisitLinks(from, collect);
  // `base` is the probability below the weakest link.
  float base = kUnknownProbability;
  for (const StaticPrior* of : priors_) {
    if (of != nullptr) base = std::max(base, of->Unigram(token));
  }
  trust_->Learn({collect.links.data(), collect.size}, base);
}

}  // namespace foretoken
