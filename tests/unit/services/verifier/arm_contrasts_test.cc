#include "services/verifier/core/arm_contrasts.h"

#include <cmath>

#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

constexpr double kNoise = 0.05 * 0.05;

ArmContrasts::Beliefs Vague() {
  ArmContrasts::Beliefs beliefs;
  beliefs[1] = beliefs[2] = {0.0, 0.16};
  return beliefs;
}

TEST(ArmContrastsTest, WhatSlicesShowIsBelievedMoreAndMore) {
  ArmContrasts contrasts(Vague());
  EXPECT_NEAR(contrasts.Deviation(DraftArm::kWide, DraftArm::kOff), 0.4, 1e-9);
  double before = 0.4;
  for (int i = 0; i < 10; ++i) {
    contrasts.Observe(DraftArm::kOff, 4.0, kNoise);
    contrasts.Observe(DraftArm::kWide, 4.5, kNoise);
    const double now = contrasts.Deviation(DraftArm::kWide, DraftArm::kOff);
    EXPECT_LT(now, before);
    before = now;
  }
  EXPECT_NEAR(contrasts.Mean(DraftArm::kWide), 0.5, 0.01);
  EXPECT_NEAR(contrasts.Expected(DraftArm::kWide).mean, 4.5, 0.02);
  EXPECT_EQ(contrasts.Mean(DraftArm::kNarrow), 0);
  EXPECT_NEAR(contrasts.Deviation(DraftArm::kNarrow, DraftArm::kOff), 0.4,
              1e-6);
}

TEST(ArmContrastsTest, AChangeThatAllArmsShareFavoursNone) {
  ArmContrasts contrasts(Vague());
  double level = 4.0;
  for (int i = 0; i < 200; ++i) {
    contrasts.Age(0.1);
    contrasts.Observe(i % 2 == 0 ? DraftArm::kOff : DraftArm::kNarrow, level,
                      kNoise);
    level -= 0.005;  // to a third of the goodput in all
  }
  EXPECT_NEAR(contrasts.Mean(DraftArm::kNarrow), 0, 0.02);
}

TEST(ArmContrastsTest, TimeMakesUncertainUpToAPoint) {
  ArmContrasts contrasts(Vague());
  for (int i = 0; i < 50; ++i) {
    contrasts.Observe(DraftArm::kOff, 4.0, kNoise);
    contrasts.Observe(DraftArm::kWide, 3.5, kNoise);
  }
  const double sure = contrasts.Deviation(DraftArm::kWide, DraftArm::kOff);
  EXPECT_LT(sure, 0.02);
  contrasts.Age(100);
  EXPECT_NEAR(contrasts.Deviation(DraftArm::kWide, DraftArm::kOff), 0.1, 0.01);
  contrasts.Age(1e6);
  EXPECT_NEAR(contrasts.Deviation(DraftArm::kWide, DraftArm::kOff), 1.0, 1e-6);
  EXPECT_NEAR(contrasts.Mean(DraftArm::kWide), -0.5, 0.01);
}

// Observing an arm that is known well teaches little.
TEST(ArmContrastsTest, LearningIsWhatIsNotKnownYet) {
  ArmContrasts contrasts(Vague());
  for (int i = 0; i < 50; ++i) contrasts.Observe(DraftArm::kOff, 4.0, kNoise);
  const auto learning = [&](DraftArm observed) {
    return contrasts.Learning(observed, kNoise, DraftArm::kWide,
                              DraftArm::kOff);
  };
  EXPECT_NEAR(learning(DraftArm::kWide), 0.4, 0.01);
  EXPECT_NEAR(learning(DraftArm::kOff), 0, 0.001);
  EXPECT_NEAR(learning(DraftArm::kNarrow), 0, 0.001);
  contrasts.Observe(DraftArm::kWide, 4.5, kNoise);
  EXPECT_LT(learning(DraftArm::kWide), 0.05);
}

// At another time the level says nothing, only the difference.
TEST(ArmContrastsTest, AForgottenLevelIsLearntFromOneSlice) {
  ArmContrasts contrasts(Vague());
  for (int i = 0; i < 20; ++i) {
    contrasts.Observe(DraftArm::kOff, 4.0, kNoise);
    contrasts.Observe(DraftArm::kWide, 4.5, kNoise);
  }
  contrasts.ForgetLevel();
  contrasts.Observe(DraftArm::kOff, 2.0, kNoise);
  EXPECT_NEAR(contrasts.Expected(DraftArm::kOff).mean, 2.0, 0.01);
  EXPECT_NEAR(contrasts.Mean(DraftArm::kWide), 0.5, 0.01);
}

}  // namespace
}  // namespace foretoken::verifier
