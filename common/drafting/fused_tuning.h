// Every constant of fused drafting, with its reason. All were chosen on
// recorded outputs of one model on one mixed set of tasks (Vicuna-7B-v1.3 on
// Spec-Bench) and used unchanged elsewhere; the trust learned online corrects
// what does not carry over.
#ifndef FORETOKEN_COMMON_DRAFTING_FUSED_TUNING_H_
#define FORETOKEN_COMMON_DRAFTING_FUSED_TUNING_H_

#include <cstddef>
#include <cstdint>

namespace foretoken::fused_tuning {

// Of one source's matches only the longest few are read: shorter ones are
// contained in them, and each costs time at every node.
inline constexpr int kMatchesPerSource = 3;

// Confidence in the counts of a match is T / (T + K d), T occurrences of d
// distinct continuations (Witten-Bell with a factor). Other requests' outputs
// are weaker evidence than this one's.
inline constexpr float kRequestDoubt = 2.0f;
inline constexpr float kHistoryDoubt = 9.0f;

// A token of the prior that this request has used is likelier to come again
// than the corpus says, others a little less likely.
inline constexpr float kSeenBoost = 2.0f;
inline constexpr float kUnseenBoost = 0.7f;

// Copying goes on after one wrong token if the copy was at least this long
// before (an edited word in copied text), and is given up at the third.
inline constexpr uint32_t kMinCopyToRecover = 8;
inline constexpr uint32_t kMaxCopyMisses = 2;
// A recovered copy that is right for this long is an ordinary one again.
inline constexpr uint32_t kCopyHealed = 9;
// Matches longer than this are not told apart.
inline constexpr uint32_t kMaxCopyLength = 64;

// Gradient steps on the log of a trust factor, per committed token: of the
// factor shared by all requests, and of the request's own on top of it.
inline constexpr float kSharedRate = 0.05f;
inline constexpr float kRequestRate = 0.15f;
// How far the factors may go.
inline constexpr float kMaxSharedFactor = 100.0f;
inline constexpr float kMaxRequestFactor = 4.0f;

// Evidence that could add less than this share of what a node must reach to
// enter the tree is left out: it decides little and takes most of the time.
inline constexpr float kNegligible = 0.4f;
// Continuations read of one match: deeper ones never enter a tree of 64.
inline constexpr uint32_t kMaxContinuations = 48;

}  // namespace foretoken::fused_tuning

#endif  // FORETOKEN_COMMON_DRAFTING_FUSED_TUNING_H_
