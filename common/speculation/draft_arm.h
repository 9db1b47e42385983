// DraftArm: how much the requests of a verifier draft. The verifier, which
// knows the load, announces the arm with every answer (goodput_guard.h);
// requests in mode auto follow it, and name it with every round that they
// drafted under it. An arm changes speed, never a token.
#ifndef FORETOKEN_COMMON_SPECULATION_DRAFT_ARM_H_
#define FORETOKEN_COMMON_SPECULATION_DRAFT_ARM_H_

#include <array>
#include <cstddef>

namespace foretoken {

enum class DraftArm : int {
  kNone = -1,  // announced: draft as you like; named: the round follows none
  kOff,        // no drafts: no drafter is asked
  kNarrow,     // the few likeliest nodes
  kWide,       // all nodes whose price their chances pay
};

inline constexpr size_t kDraftArms = 3;

inline constexpr std::array<const char*, kDraftArms> kDraftArmNames = {
    "off", "narrow", "wide"};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_DRAFT_ARM_H_
