#include "services/draft_worker/core/claim_calibration.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::draft_worker {
namespace {

using ::testing::FloatEq;
using ::testing::FloatNear;

TEST(ClaimCalibrationTest, ClaimsStandUntilSomethingIsKnown) {
  const ClaimCalibration calibration;
  for (const float claim : {0.001f, 0.05f, 0.4f, 0.96f, 1.0f}) {
    EXPECT_THAT(calibration.Corrected(true, claim), FloatEq(claim));
    EXPECT_THAT(calibration.Corrected(false, claim), FloatEq(claim));
  }
}

TEST(ClaimCalibrationTest, ClaimsMoveToWhatTheirGroupTurnedOutToBe) {
  ClaimCalibration calibration;
  for (int i = 0; i < 1000; ++i) calibration.Note(true, 0.9f, i % 2 == 0);
  EXPECT_THAT(calibration.Corrected(true, 0.9f), FloatNear(0.5f, 0.06f));
  // Within a group the surer token stays the likelier one.
  EXPECT_GT(calibration.Corrected(true, 0.94f),
            calibration.Corrected(true, 0.88f));
  // Other groups, and the tokens that were not drawn, say nothing about it.
  EXPECT_THAT(calibration.Corrected(true, 0.6f), FloatEq(0.6f));
  EXPECT_THAT(calibration.Corrected(false, 0.9f), FloatEq(0.9f));
}

TEST(ClaimCalibrationTest, OldObservationsAreForgotten) {
  ClaimCalibration calibration;
  for (int i = 0; i < 10000; ++i) calibration.Note(true, 0.6f, true);
  EXPECT_GT(calibration.Corrected(true, 0.6f), 0.9f);
  for (int i = 0; i < 300; ++i) calibration.Note(true, 0.6f, false);
  EXPECT_LT(calibration.Corrected(true, 0.6f), 0.2f);
}

TEST(ClaimCalibrationTest, AFewObservationsMoveALittle) {
  ClaimCalibration calibration;
  calibration.Note(false, 0.2f, true);
  const float once = calibration.Corrected(false, 0.2f);
  EXPECT_GT(once, 0.2f);
  EXPECT_LT(once, 0.4f);
}

TEST(ClaimCalibrationTest, ChancesStayWithinTheirRange) {
  ClaimCalibration calibration;
  for (int i = 0; i < 1000; ++i) {
    calibration.Note(true, 0.01f, true);
    calibration.Note(false, 0.99f, false);
    calibration.Note(true, 0.96f, true);
  }
  EXPECT_THAT(calibration.Corrected(true, 0.04f), FloatNear(1.0f, 0.15f));
  EXPECT_LE(calibration.Corrected(true, 1.0f), 1.0f);
  EXPECT_GE(calibration.Corrected(false, 0.951f), ClaimCalibration::kLeast);
}

}  // namespace
}  // namespace foretoken::draft_worker
