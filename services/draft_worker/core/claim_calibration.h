// ClaimCalibration: how often the target agrees with a token of the draft model
// by the chance that the draft model gives it, learnt in the session.
//
// A model is often surer, or less sure, than it is right, and at a temperature
// the shared noise makes the drawn token likelier than its probability says. So
// claims are grouped by size, and a claim is moved by what its group was wrong
// by on average. Owned by one thread.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_CLAIM_CALIBRATION_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_CLAIM_CALIBRATION_H_

#include <algorithm>
#include <array>
#include <cstddef>

namespace foretoken::draft_worker {

class ClaimCalibration {
 public:
  // The least chance of a token: an unlikely one may still be the target's.
  static constexpr float kLeast = 1e-3f;

  // A token of chance `claim` was, or was not, the target's. `drawn`: the draft
  // model drew it; else it is one of the other likely tokens.
  void Note(bool drawn, float claim, bool accepted) {
    Group& group = groups_[drawn][GroupOf(claim)];
    if (group.claims >= kMemory) {
      group.claims /= 2;
      group.surplus /= 2;
    }
    ++group.claims;
    group.surplus += (accepted ? 1.0f : 0.0f) - claim;
  }

  // In [kLeast, 1].
  float Corrected(bool drawn, float claim) const {
    const Group& group = groups_[drawn][GroupOf(claim)];
    return std::clamp(claim + group.surplus / (group.claims + kPriorClaims),
                      kLeast, 1.0f);
  }

 private:
  static constexpr std::array<float, 7> kBounds = {0.05f, 0.15f, 0.3f, 0.5f,
                                                   0.7f,  0.85f, 0.95f};
  // The claims themselves count as this many observations.
  static constexpr float kPriorClaims = 8.0f;
  // A text changes: at this many observations, the earlier ones count half.
  static constexpr float kMemory = 128.0f;

  struct Group {
    float claims = 0.0f;
    float surplus = 0.0f;  // accepted tokens beyond what the claims add up to
  };

  static size_t GroupOf(float claim) {
    return static_cast<size_t>(
        std::lower_bound(kBounds.begin(), kBounds.end(), claim) -
        kBounds.begin());
  }

  std::array<std::array<Group, kBounds.size() + 1>, 2> groups_{};
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_CLAIM_CALIBRATION_H_
