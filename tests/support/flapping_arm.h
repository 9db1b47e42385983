// NextArm: a guard that announces another arm after every pass, which must
// change no token.
#ifndef FORETOKEN_TESTS_SUPPORT_FLAPPING_ARM_H_
#define FORETOKEN_TESTS_SUPPORT_FLAPPING_ARM_H_

#include <array>
#include <cstddef>

#include "common/speculation/draft_arm.h"

namespace foretoken::testing {

// An ArmHook: off, narrow, wide and again.
inline DraftArm NextArm(DraftArm arm) {
  constexpr std::array kArms = {DraftArm::kOff, DraftArm::kNarrow,
                                DraftArm::kWide};
  for (size_t i = 0; i < kArms.size(); ++i) {
    if (kArms[i] == arm) return kArms[(i + 1) % kArms.size()];
  }
  return kArms.front();
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_FLAPPING_ARM_H_
