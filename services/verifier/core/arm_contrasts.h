// ArmContrasts: how the goodput of the drafting arms compares at one load, from
// slices of time measured under one arm each.
//
// A Kalman filter over three numbers: the logarithm of the goodput without
// drafts, which drifts, and what `narrow` and `wide` add to it, which hardly
// do. Slices that are close in time are thus compared with each other, and a
// change that all arms share, such as longer contexts, favours none.
//
// Thread-compatible.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_ARM_CONTRASTS_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_ARM_CONTRASTS_H_

#include <array>

#include "common/speculation/draft_arm.h"

namespace foretoken::verifier {

class ArmContrasts {
 public:
  // Mean and variance of what an arm adds to the logarithm of the goodput. 0
  // for kOff.
  struct Belief {
    double mean = 0;
    double variance = 0;
  };
  using Beliefs = std::array<Belief, kDraftArms>;

  ArmContrasts() : ArmContrasts(Beliefs()) {}
  explicit ArmContrasts(const Beliefs& beliefs);

  // Time passes: what is known gets less certain.
  void Age(double seconds);
  // The level is not known any more: time passed at other loads.
  void ForgetLevel();
  // Goodput has changed: so may what the arms add.
  void Loosen();
  // A slice under `arm` had this logarithm of tokens a second, whose noise has
  // this variance.
  void Observe(DraftArm arm, double log_rate, double variance);

  double Mean(DraftArm arm) const;
  Belief Get(DraftArm arm) const;
  // Standard deviation of the difference of two arms.
  double Deviation(DraftArm a, DraftArm b) const;
  // Standard deviation of the change of what `a` is believed to add to `b`, by
  // one more observation of `observed` with noise of this variance.
  double Learning(DraftArm observed, double variance, DraftArm a,
                  DraftArm b) const;
  // The next slice's expected logarithm, and its variance without its noise.
  Belief Expected(DraftArm arm) const;

 private:
  static constexpr int kStates = 3;  // the level, narrow, wide
  using Vector = std::array<double, kStates>;

  // Which states a slice under `arm` adds up.
  static Vector Design(DraftArm arm);
  static Vector Difference(DraftArm a, DraftArm b);
  Vector Covariance(const Vector& of) const;
  double Variance(const Vector& of) const;
  void Limit();

  Vector mean_{};
  std::array<Vector, kStates> covariance_{};
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_ARM_CONTRASTS_H_
