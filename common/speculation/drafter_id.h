// DrafterId: the drafter of a token tree's node, shared by cores, metrics and
// messages (v1::Drafter is one higher).
#ifndef FORETOKEN_COMMON_SPECULATION_DRAFTER_ID_H_
#define FORETOKEN_COMMON_SPECULATION_DRAFTER_ID_H_

#include <array>
#include <cstddef>

namespace foretoken {

// In the order of the mode table, which breaks ties between equal estimates.
enum class DrafterId : int {
  kTarget = -1,  // no drafter: the target model's own (bonus) token
  kDraftModel,
  kLookahead,
  kOuroboros,
  kNgramTrie,
  kCrest,
  kPromptLookup,
  kFused,
  // Parts of the fused drafter, to which nodes and tokens are attributed:
  // the request's own text, earlier outputs, the static prior, the target's
  // likeliest tokens after verified rows. Their drafts are counted as kFused.
  kFusedRequest,
  kFusedHistory,
  kFusedPrior,
  kFusedRecycled,
  // Text that the request's constraint forces, in mode auto.
  kGrammar,
};

inline constexpr std::array<const char*, 12> kDrafterNames = {
    "draft_model",   "lookahead",     "ouroboros",      "ngram_trie",
    "crest",         "prompt_lookup", "fused",          "fused_request",
    "fused_history", "fused_prior",   "fused_recycled", "grammar"};

// The drafters that can be asked for drafts: the closed set of every metric's
// `drafter` label.
inline constexpr std::array<DrafterId, 8> kAskedDrafters = {
    DrafterId::kDraftModel, DrafterId::kLookahead, DrafterId::kOuroboros,
    DrafterId::kNgramTrie,  DrafterId::kCrest,     DrafterId::kPromptLookup,
    DrafterId::kFused,      DrafterId::kGrammar};

// `id` is not kTarget.
inline const char* DrafterName(DrafterId id) {
  return kDrafterNames[static_cast<size_t>(id)];
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_DRAFTER_ID_H_
