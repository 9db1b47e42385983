#include "common/drafting/phrase_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace foretoken {

PhrasePool::PhrasePool(const PhrasePoolOptions& options) : options_(options) {
  FORETOKEN_CHECK(options.width >= 1 &&
                  options.width <= PhrasePoolOptions::kMaxWidth);
  FORETOKEN_CHECK(options.phrase_tokens >= 2 &&
                  options.phrase_tokens <= PhrasePoolOptions::kMaxPhraseTokens);
  // Slots are 32-bit, and a phrase has several tokens.
  FORETOKEN_CHECK(options.max_phrases >= 1 && options.max_phrases <= int64_t{1}
                                                                         << 30);
}

// Linear search: a key has at most `width` phrases.
int32_t PhrasePool::FindIn(const Key& key,
                           absl::Span<const TokenId> phrase) const {
  int32_t slot = key.newest;
  while (slot != kNone && Phrase(slot) != phrase) slot = links_[slot].key_older;
  return slot;
}

int32_t PhrasePool::NewSlot() {
  // Slots of removed phrases are used again before the vectors grow.
  if (free_ != kNone) {
    const int32_t slot = free_;
    free_ = links_[slot].older;
    return slot;
  }
  // Both vectors grow together; max_phrases bounds them, so doubling stops
  // there.
  // Not by the vector's own doubling, which would go beyond max_phrases.
  if (links_.size() == links_.capacity()) {
    const size_t room = std::min(std::max<size_t>(64, 2 * links_.size()),
                                 static_cast<size_t>(options_.max_phrases));
    links_.reserve(room);
    tokens_.reserve(room * options_.phrase_tokens);
  }
  links_.push_back({kNone, kNone, kNone, kNone});
  tokens_.resize(tokens_.size() + options_.phrase_tokens);
  return static_cast<int32_t>(links_.size()) - 1;
}

void PhrasePool::PushFront(Key& key, int32_t slot) {
  Links& links = links_[slot];
  links = {kNone, key.newest, kNone, newest_};
  // Two lists run through each slot: the phrases of its key, and all phrases,
  // both by age.
  if (key.newest != kNone) links_[key.newest].key_newer = slot;
  if (newest_ != kNone) links_[newest_].newer = slot;
  key.newest = slot;
  newest_ = slot;
  if (key.oldest == kNone) key.oldest = slot;
  if (oldest_ == kNone) oldest_ = slot;
  ++key.size;
  ++size_;
}

void PhrasePool::Detach(Key& key, int32_t slot) {
  const Links links = links_[slot];
  // Each neighbour, or the list head in its absence, skips the slot.
  (links.key_newer == kNone ? key.newest : links_[links.key_newer].key_older) =
      links.key_older;
  (links.key_older == kNone ? key.oldest : links_[links.key_older].key_newer) =
      links.key_newer;
  (links.newer == kNone ? newest_ : links_[links.newer].older) = links.older;
  (links.older == kNone ? oldest_ : links_[links.older].newer) = links.newer;
  --key.size;
  --size_;
}

void PhrasePool::Remove(int32_t slot) {
  const auto key = keys_.find(Phrase(slot)[0]);
  Detach(key->second, slot);
  if (key->second.size == 0) keys_.erase(key);
  // The free list is linked through `older`, which a free slot does not need.
  links_[slot].older = free_;
  free_ = slot;
}

void PhrasePool::Insert(absl::Span<const TokenId> phrase) {
  FORETOKEN_CHECK(phrase.size() == static_cast<size_t>(options_.phrase_tokens));
  const auto found = keys_.find(phrase[0]);
  if (found != keys_.end()) {
    const int32_t repeat = FindIn(found->second, phrase);
    if (repeat != kNone) {
      // A repeat is as good as new.
      Detach(found->second, repeat);
      PushFront(found->second, repeat);
      return;
    }
    // W per key: the oldest phrase of this key makes room.
    if (found->second.size == options_.width) Remove(found->second.oldest);
  }
  // Removing may erase the key of another phrase and rehash: look up keys_ anew
  // below.
  if (size_ == options_.max_phrases) Remove(oldest_);
  const int32_t slot = NewSlot();
  std::copy(
      phrase.begin(), phrase.end(),
      tokens_.begin() + static_cast<int64_t>(slot) * options_.phrase_tokens);
  PushFront(keys_[phrase[0]], slot);
}

void PhrasePool::InsertWindows(absl::Span<const TokenId> tokens) {
  const size_t beta = static_cast<size_t>(options_.phrase_tokens);
  for (size_t at = 0; at + beta <= tokens.size(); ++at) {
    Insert(tokens.subspan(at, beta));
  }
}

void PhrasePool::Newest(TokenId key, int k,
                        std::vector<absl::Span<const TokenId>>& phrases) const {
  phrases.clear();
  const auto found = keys_.find(key);
  if (found == keys_.end()) return;
  int32_t slot = found->second.newest;
  for (; slot != kNone && static_cast<int>(phrases.size()) < k;
       slot = links_[slot].key_older) {
    phrases.push_back(Phrase(slot));
  }
}

bool PhrasePool::Refine(absl::Span<const TokenId> phrase,
                        absl::Span<const TokenId> refined) {
  FORETOKEN_CHECK(phrase.size() == static_cast<size_t>(options_.phrase_tokens));
  FORETOKEN_CHECK(refined.size() == phrase.size() && refined[0] == phrase[0]);
  const auto found = keys_.find(phrase[0]);
  if (found == keys_.end()) return false;
  const int32_t slot = FindIn(found->second, phrase);
  if (slot == kNone) return false;
  // Nothing to change, and the phrase is there.
  if (phrase == refined) return true;
  // Search for `refined`, newest first; `newer` is true until `slot` is passed.
  for (int32_t other = found->second.newest, newer = true; other != kNone;
       other = links_[other].key_older) {
    if (other == slot) newer = false;
    if (other == slot || Phrase(other) != refined) continue;
    // The refined phrase is there, and newer: the old one only takes room.
    if (newer) {
      Remove(slot);
      return true;
    }
    Remove(other);
    break;
  }
  // In place: a refined phrase keeps its age, as it is the same phrase,
  // corrected.
  std::copy(
      refined.begin(), refined.end(),
      tokens_.begin() + static_cast<int64_t>(slot) * options_.phrase_tokens);
  return true;
}

int PhrasePool::Inspire(absl::Span<const TokenId> draft,
                        absl::Span<const TokenId> target, int accepted) {
  const int gamma = static_cast<int>(draft.size());
  const int beta = options_.phrase_tokens;
  FORETOKEN_CHECK(static_cast<int>(target.size()) == gamma + 1);
  FORETOKEN_CHECK(accepted >= 0 && accepted <= gamma);
  int inserted = 0;
  int agreed = 0;  // length of the run of agreeing positions up to `end`
  // As in the paper, `i` and `end` count from 1. `end` is the last position on
  // which draft and target must agree: i + beta - 2.
  for (int end = accepted + 2; end <= gamma; ++end) {
    agreed = draft[end - 1] == target[end - 1] ? agreed + 1 : 0;
    const int i = end - (beta - 2);
    // Ouroboros (arXiv:2402.13720): a piece of the target's own tokens after
    // the accepted part is taken where draft and target agree on beta - 1
    // positions in a row.
    if (agreed < beta - 1 || i < accepted + 2) continue;
    Insert(target.subspan(i - 1, beta));
    ++inserted;
  }
  return inserted;
}

bool PhrasePool::RefineSuffix(absl::Span<const TokenId> suffix,
                              TokenId after_leaf,
                              absl::Span<const TokenId> target) {
  FORETOKEN_CHECK(target.size() + 2 == suffix.size());
  std::vector<TokenId> refined = {suffix[0], after_leaf};
  refined.insert(refined.end(), target.begin(), target.end());
  return Refine(suffix, refined);
}

std::vector<TokenId> PhrasePool::Snapshot() const {
  std::vector<TokenId> phrases;
  phrases.reserve(size_ * options_.phrase_tokens);
  for (int32_t slot = oldest_; slot != kNone; slot = links_[slot].newer) {
    const absl::Span<const TokenId> phrase = Phrase(slot);
    phrases.insert(phrases.end(), phrase.begin(), phrase.end());
  }
  return phrases;
}

absl::Status PhrasePool::MergeOlder(absl::Span<const TokenId> snapshot) {
  const size_t beta = static_cast<size_t>(options_.phrase_tokens);
  if (snapshot.size() % beta != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("phrase pool snapshot: ", snapshot.size(),
                     " tokens, want a multiple of ", beta));
  }
  // Checked whole before anything is cleared.
  for (size_t at = 0; at < snapshot.size(); ++at) {
    if (snapshot[at] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("phrase pool snapshot: token ", at, " is ", snapshot[at],
                       ", want >= 0"));
    }
  }
  // Re-insertion in order of age applies the width limits as usual: where a key
  // overflows, the snapshot's phrases are the oldest and go first.
  const std::vector<TokenId> own = Snapshot();
  Clear();
  for (const absl::Span<const TokenId> part :
       {snapshot, absl::Span<const TokenId>(own)}) {
    for (size_t at = 0; at < part.size(); at += beta) {
      Insert(part.subspan(at, beta));
    }
  }
  return absl::OkStatus();
}

void PhrasePool::Clear() {
  // Fresh containers release the memory.
  tokens_ = std::vector<TokenId>();
  links_ = std::vector<Links>();
  keys_ = absl::flat_hash_map<TokenId, Key>();
  newest_ = oldest_ = free_ = kNone;
  size_ = 0;
}

size_t PhrasePool::MemoryBytes() const {
  // A flat_hash_map has a control byte per slot.
  return tokens_.capacity() * sizeof(TokenId) +
         links_.capacity() * sizeof(Links) +
         keys_.capacity() * (sizeof(std::pair<TokenId, Key>) + 1);
}

size_t PhrasePool::MaxBytes() const {
  // The map's capacity is a power of two minus one, at most 7/8 full.
  size_t slots = 1;
  // Twice what fits at 7/8: while a map grows, both tables exist.
  while (slots * 7 < static_cast<size_t>(options_.max_phrases) * 8) slots *= 2;
  return static_cast<size_t>(options_.max_phrases) *
             (options_.phrase_tokens * sizeof(TokenId) + sizeof(Links)) +
         slots * 2 * (sizeof(std::pair<TokenId, Key>) + 1);
}

}  // namespace foretoken
