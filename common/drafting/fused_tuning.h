// All constants of fused drafting, with reasons. They were chosen on recorded
// outputs of one model on one mixed set of tasks (Vicuna-7B-v1.3 on Spec-Bench)
// and used unchanged elsewhere; the trust learned online corrects what does not
// carry over.
#ifndef FORETOKEN_COMMON_DRAFTING_FUSED_TUNING_H_
#define FORETOKEN_COMMON_DRAFTING_FUSED_TUNING_H_

#include <cstddef>
#include <cstdint>

namespace foretoken::fused_tuning {

// Only the longest few matches of each source are read: shorter ones are
// contained in them, and each costs time at every node.
inline constexpr int kMatchesPerSource = 3;

// Confidence in the counts of a match is T / (T + K d), for T occurrences of d
// distinct continuations (Witten-Bell with a factor K). Outputs of other
// requests are weaker evidence than this request's text.
inline constexpr float kRequestDoubt = 2.0f;
inline constexpr float kHistoryDoubt = 9.0f;

// Tokens that this request has already used are more likely than the prior's
// corpus says, all others a little less likely.
inline constexpr float kSeenBoost = 2.0f;
inline constexpr float kUnseenBoost = 0.7f;

// A copy survives a wrong token if it was at least this long (an edited word in
// copied text), and ends at the third wrong one.
inline constexpr uint32_t kMinCopyToRecover = 8;
inline constexpr uint32_t kMaxCopyMisses = 2;
// A recovered copy that has been right for this long counts as an ordinary one.
inline constexpr uint32_t kCopyHealed = 9;
// Longer matches are treated alike.
inline constexpr uint32_t kMaxCopyLength = 64;

// Learning rates of the log of a trust factor, per committed token: of the
// factor shared by all requests, and of the request's own factor on top of it.
inline constexpr float kSharedRate = 0.05f;
inline constexpr float kRequestRate = 0.15f;
// Bounds of the factors: 1/max..max.
inline constexpr float kMaxSharedFactor = 100.0f;
inline constexpr float kMaxRequestFactor = 4.0f;

// Evidence that could add less than this share of the probability that a node
// needs to enter the tree is skipped: it decides little and takes most of the
// time.
inline constexpr float kNegligible = 0.4f;
// Continuations read per match; lower-ranked ones never enter a tree of 64.
inline constexpr uint32_t kMaxContinuations = 48;

}  // namespace foretoken::fused_tuning

#endif  // FORETOKEN_COMMON_DRAFTING_FUSED_TUNING_H_
