#include "common/drafting/trust.h"

#include <set>
#include <vector>

#include "common/drafting/fused_tuning.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

TEST(TrustTest, EveryKindHasASlotOfItsOwnClass) {
  std::set<int> shared, fast;
  for (PriorLayer layer : {PriorLayer::kShared, PriorLayer::kScope}) {
    for (int length = 1; length <= SharedTrust::kPriorLengths; ++length) {
      for (int code = 0; code < 256; ++code) {
        const TrustKind kind =
            TrustKind::Prior(layer, length, static_cast<uint8_t>(code));
        shared.insert(kind.shared);
        fast.insert(kind.fast);
      }
    }
  }
  for (Source source : {Source::kRequest, Source::kHistory}) {
    for (int length = 1; length <= SharedTrust::kCountLengths; ++length) {
      for (uint32_t total : {1u, 2u, 5u, 8u, 9u, 21u, 1000u}) {
        for (uint32_t distinct = 1; distinct <= total; ++distinct) {
          const TrustKind kind =
              TrustKind::Counts(source, length, total, distinct);
          shared.insert(kind.shared);
          fast.insert(kind.fast);
        }
      }
    }
    for (int length = 1; length <= SharedTrust::kRecycledLengths; ++length) {
      for (int percent = 0; percent <= 100; ++percent) {
        const TrustKind kind = TrustKind::Recycled(
            source, length, static_cast<float>(percent) / 100.0f);
        shared.insert(kind.shared);
        fast.insert(kind.fast);
      }
    }
    for (uint32_t misses : {0u, 1u, 2u}) {
      for (uint32_t length = 1; length < 100; ++length) {
        const TrustKind kind = TrustKind::Copy(source, length, misses);
        shared.insert(kind.shared);
        fast.insert(kind.fast);
      }
    }
  }
  // All slots are used, none beyond.
  EXPECT_EQ(shared.size(), size_t{SharedTrust::kKinds});
  EXPECT_EQ(*shared.rbegin(), SharedTrust::kKinds - 1);
  EXPECT_EQ(fast.size(), size_t{Trust::kFastKinds});
  EXPECT_EQ(*fast.rbegin(), Trust::kFastKinds - 1);
}

TEST(TrustTest, ChainsFromTheWeakestLinkToTheStrongest) {
  SharedTrust shared;
  Trust trust(shared);
  const TrustKind kind = TrustKind::Prior(PriorLayer::kShared, 1, 0);
  // Strongest first: ((0.1 * 0.5 + 0.5 * 0.2) * 0.75 + 0.25 * 0.8).
  const std::vector<TrustLink> links = {{kind, 0.25f, 0.8f},
                                        {kind, 0.5f, 0.2f}};
  EXPECT_NEAR(trust.Learn(links, 0.1f), 0.3125f, 1e-6f);
}

TEST(TrustTest, AScopesPriorIsTrustedAsTheSharedOneAtFirst) {
  SharedTrust shared;
  Trust trust(shared);
  for (int length = 1; length <= SharedTrust::kPriorLengths; ++length) {
    for (int code = 0; code < 256; code += 8) {
      const uint8_t of = static_cast<uint8_t>(code);
      EXPECT_EQ(
          trust.Factor(TrustKind::Prior(PriorLayer::kScope, length, of)),
          trust.Factor(TrustKind::Prior(PriorLayer::kShared, length, of)));
    }
  }
}

TEST(TrustTest, RisesForALinkThatWasRightAndFallsForOneThatWasWrong) {
  SharedTrust shared;
  Trust trust(shared);
  const TrustKind right = TrustKind::Copy(Source::kRequest, 20, 0);
  const TrustKind wrong = TrustKind::Copy(Source::kHistory, 20, 0);
  const float right_before = trust.Factor(right);
  const float wrong_before = trust.Factor(wrong);
  trust.Learn({{wrong, 0.3f, 0.0f}, {right, 0.3f, 1.0f}}, 0.1f);
  EXPECT_GT(trust.Factor(right), right_before);
  EXPECT_LT(trust.Factor(wrong), wrong_before);
}

TEST(TrustTest, ARequestsOwnFactorsEndWithIt) {
  SharedTrust shared;
  Trust trust(shared);
  const TrustKind kind = TrustKind::Counts(Source::kRequest, 3, 4, 1);
  const float start = trust.Factor(kind);
  for (int i = 0; i < 5; ++i) trust.Learn({{kind, 0.5f, 1.0f}}, 0.1f);
  const float during = trust.Factor(kind);
  trust.StartRequest();
  const float after = trust.Factor(kind);
  EXPECT_GT(during, after);
  EXPECT_GT(after, start);  // what all requests share stays
}

TEST(TrustTest, FactorsStayBounded) {
  SharedTrust shared;
  Trust trust(shared);
  const TrustKind kind = TrustKind::Prior(PriorLayer::kShared, 2, 16);
  const float most =
      fused_tuning::kMaxSharedFactor * fused_tuning::kMaxRequestFactor;
  for (float share : {1.0f, 0.0f}) {
    for (int i = 0; i < 5000; ++i) trust.Learn({{kind, 0.5f, share}}, 1e-6f);
    EXPECT_LE(trust.Factor(kind), most * 1.001f);
    EXPECT_GE(trust.Factor(kind), 0.999f / most);
  }
}

}  // namespace
}  // namespace foretoken
