#include "services/verifier/core/arm_contrasts.h"

#include <algorithm>
#include <cmath>

namespace foretoken::verifier {
namespace {

// Growth of the variances per second: the level moves by 5 % in a second, what
// an arm adds by 1 %.
constexpr double kLevelDrift = 0.05 * 0.05;
constexpr double kArmDrift = 0.01 * 0.01;
// An arm is never less certain than this, however long it was not tried.
constexpr double kMaxArmVariance = 1.0;
constexpr double kUnknownLevel = 100.0;
constexpr double kLoosening = 0.1 * 0.1;
constexpr double kLevelLoosening = 0.3 * 0.3;

}  // namespace

ArmContrasts::ArmContrasts(const Beliefs& beliefs) {
  // Nothing is known about the level of goodput before the first slice.
  covariance_[0][0] = kUnknownLevel;
  for (int i = 1; i < kStates; ++i) {
    mean_[i] = beliefs[i].mean;
    covariance_[i][i] = beliefs[i].variance;
  }
}

ArmContrasts::Vector ArmContrasts::Design(DraftArm arm) {
  Vector design = {1, 0, 0};
  // The state is (level, narrow, wide): an arm's expectation is the level plus
  // what it adds; `off` adds nothing.
  if (arm != DraftArm::kOff) design[static_cast<size_t>(arm)] = 1;
  return design;
}

ArmContrasts::Vector ArmContrasts::Difference(DraftArm a, DraftArm b) {
  Vector difference = Design(a);
  const Vector other = Design(b);
  for (int i = 0; i < kStates; ++i) difference[i] -= other[i];
  return difference;
}

ArmContrasts::Vector ArmContrasts::Covariance(const Vector& of) const {
  Vector product{};
  for (int i = 0; i < kStates; ++i) {
    for (int j = 0; j < kStates; ++j) product[i] += covariance_[i][j] * of[j];
  }
  return product;
}

double ArmContrasts::Variance(const Vector& of) const {
  const Vector product = Covariance(of);
  double variance = 0;
  for (int i = 0; i < kStates; ++i) variance += of[i] * product[i];
  // Rounding can take a variance just below zero.
  return std::max(0.0, variance);
}

// Scales a state that has become too uncertain, with its covariances.
void ArmContrasts::Limit() {
  for (int i = 0; i < kStates; ++i) {
    const double most = i == 0 ? kUnknownLevel : kMaxArmVariance;
    if (covariance_[i][i] <= most) continue;
    // Scaling row and column by the square root keeps the matrix positive
    // semidefinite.
    const double factor = std::sqrt(most / covariance_[i][i]);
    for (int j = 0; j < kStates; ++j) {
      covariance_[i][j] *= factor;
      covariance_[j][i] *= factor;
    }
  }
}

void ArmContrasts::Age(double seconds) {
  covariance_[0][0] += kLevelDrift * seconds;
  for (int i = 1; i < kStates; ++i) covariance_[i][i] += kArmDrift * seconds;
  Limit();
}

void ArmContrasts::ForgetLevel() {
  // What the arms add is kept: it is what this object is for. The level belongs
  // to a load that may have changed.
  for (int i = 1; i < kStates; ++i) covariance_[0][i] = covariance_[i][0] = 0;
  covariance_[0][0] = kUnknownLevel;
}

void ArmContrasts::Loosen() {
  covariance_[0][0] += kLevelLoosening;
  for (int i = 1; i < kStates; ++i) covariance_[i][i] += kLoosening;
  Limit();
}

void ArmContrasts::Observe(DraftArm arm, double log_rate, double variance) {
  const Vector design = Design(arm);
  const Vector covariance = Covariance(design);
  // A Kalman update with one observation: the gain is covariance / total.
  const double total = Variance(design) + variance;
  double error = log_rate;
  for (int i = 0; i < kStates; ++i) error -= design[i] * mean_[i];
  for (int i = 0; i < kStates; ++i) {
    mean_[i] += covariance[i] * error / total;
    for (int j = 0; j < kStates; ++j) {
      covariance_[i][j] -= covariance[i] * covariance[j] / total;
    }
  }
}

double ArmContrasts::Mean(DraftArm arm) const {
  return arm == DraftArm::kOff ? 0.0 : mean_[static_cast<size_t>(arm)];
}

ArmContrasts::Belief ArmContrasts::Get(DraftArm arm) const {
  const double deviation = Deviation(arm, DraftArm::kOff);
  return {Mean(arm), deviation * deviation};
}

double ArmContrasts::Deviation(DraftArm a, DraftArm b) const {
  return std::sqrt(Variance(Difference(a, b)));
}

double ArmContrasts::Learning(DraftArm observed, double variance, DraftArm a,
                              DraftArm b) const {
  const Vector design = Design(observed);
  const Vector covariance = Covariance(design);
  const Vector difference = Difference(a, b);
  double common = 0;
  for (int i = 0; i < kStates; ++i) common += difference[i] * covariance[i];
  // The deviation by which this observation is expected to move the
  // difference of a and b: what a probe can teach.
  return std::abs(common) / std::sqrt(Variance(design) + variance);
}

ArmContrasts::Belief ArmContrasts::Expected(DraftArm arm) const {
  return {mean_[0] + Mean(arm), Variance(Design(arm))};
}

}  // namespace foretoken::verifier
