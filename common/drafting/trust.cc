#include "common/drafting/trust.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/drafting/fused_tuning.h"
#include "common/drafting/trust_start.h"

namespace foretoken {
namespace {

// Layout of kinds: the shared prior, then counts and copies of each source,
// then recycled candidates of each source, then the scope's prior.
constexpr int kCountsBegin =
    SharedTrust::kPriorLengths * SharedTrust::kPriorClasses;
constexpr int kPerSource =
    SharedTrust::kCountLengths * SharedTrust::kCountClasses +
    SharedTrust::kCopyClasses;
constexpr int kFastPerSource = SharedTrust::kCountLengths + 2;
constexpr int kRecycledBegin = kCountsBegin + kCountSources * kPerSource;
constexpr int kFastRecycledBegin =
    SharedTrust::kPriorLengths + kCountSources * kFastPerSource;
constexpr int kScopePriorBegin =
    kRecycledBegin + kCountSources * SharedTrust::kRecycledLengths *
                         SharedTrust::kRecycledClasses;
constexpr int kFastScopePriorBegin =
    kFastRecycledBegin + kCountSources * SharedTrust::kRecycledLengths;

// Classifies evidence by amount and uniformity; trust_start.h lists the
// classes.
int CountClass(uint32_t total, uint32_t distinct) {
  if (total == 1) return 0;
  if (distinct == 1) return total <= 4 ? 1 : 2;
  if (distinct * 2 > total) return total <= 8 ? 3 : 4;
  return total <= 20 ? 5 : 6;
}

int CopyClass(uint32_t length) {
  if (length <= 7) return length < 7 ? 0 : 1;
  if (length <= 9) return 2;
  if (length <= 12) return 3;
  if (length <= 16) return 4;
  if (length <= 24) return 5;
  return length <= 32 ? 6 : 7;
}

// By the share of the best candidate.
int RecycledClass(float share) {
  constexpr std::array<float, SharedTrust::kRecycledClasses - 1> kBounds = {
      0.2f, 0.35f, 0.5f, 0.65f, 0.8f, 0.9f, 0.97f};
  int column = 0;
  for (const float bound : kBounds) column += share >= bound;
  return column;
}

// exp(x) to second order: steps are at most 0.15.
float SmallExp(float x) { return 1.0f + x * (1.0f + 0.5f * x); }

}  // namespace

TrustKind TrustKind::Prior(PriorLayer layer, int length, uint8_t backoff_code) {
  const bool scope = layer == PriorLayer::kScope;
  const int row = length - 1;
  // Backoff codes have 16 steps per octave: two classes per octave.
  const int column = std::min(backoff_code / 8, SharedTrust::kPriorClasses - 1);
  return {static_cast<uint16_t>((scope ? kScopePriorBegin : 0) +
                                row * SharedTrust::kPriorClasses + column),
          static_cast<uint16_t>((scope ? kFastScopePriorBegin : 0) + row)};
}

TrustKind TrustKind::Counts(Source source, int length, uint32_t total,
                            uint32_t distinct) {
  const int s = static_cast<int>(source);
  return {static_cast<uint16_t>(kCountsBegin + s * kPerSource +
                                (length - 1) * SharedTrust::kCountClasses +
                                CountClass(total, distinct)),
          static_cast<uint16_t>(SharedTrust::kPriorLengths +
                                s * kFastPerSource + length - 1)};
}

TrustKind TrustKind::Copy(Source source, uint32_t length, uint32_t misses) {
  const int s = static_cast<int>(source);
  // Columns 0..7: copies without a miss; 8..15: tokens since the last miss.
  const int column = misses == 0
                         ? CopyClass(length)
                         : 8 + static_cast<int>(std::min(length, 8u)) - 1;
  return {
      static_cast<uint16_t>(
          kCountsBegin + s * kPerSource +
          SharedTrust::kCountLengths * SharedTrust::kCountClasses + column),
      static_cast<uint16_t>(SharedTrust::kPriorLengths + s * kFastPerSource +
                            SharedTrust::kCountLengths + (length > 12))};
}

TrustKind TrustKind::Recycled(Source source, int length, float share) {
  const int row =
      static_cast<int>(source) * SharedTrust::kRecycledLengths + length - 1;
  return {static_cast<uint16_t>(kRecycledBegin +
                                row * SharedTrust::kRecycledClasses +
                                RecycledClass(share)),
          static_cast<uint16_t>(kFastRecycledBegin + row)};
}

void SharedTrust::Reset() {
  static_assert(kTrustStart.size() == kScopePriorBegin);
  static_assert(kScopePriorBegin + kCountsBegin == kKinds);
  for (size_t i = 0; i < kScopePriorBegin; ++i) {
    factors_[i] = std::exp(static_cast<float>(kTrustStart[i]) / 10.0f);
  }
  std::copy(factors_.begin(), factors_.begin() + kCountsBegin,
            factors_.begin() + kScopePriorBegin);
}

float Trust::Learn(absl::Span<const TrustLink> links, float base) {
  using namespace fused_tuning;  // NOLINT: constants only
  FORETOKEN_CHECK(links.size() <= kMaxLinks);
  // Forward, weakest link first: p is the probability below link i, then above.
  std::array<float, kMaxLinks> before;
  float p = base;
  for (size_t i = links.size(); i-- > 0;) {
    before[i] = p;
    p += links[i].weight * (links[i].share - p);
  }
  // Backward, strongest first: `outer` is d log P / d p after link i.
  float outer = 1.0f / std::max(p, 1e-9f);
  for (size_t i = 0; i < links.size(); ++i) {
    const TrustLink& link = links[i];
    // d log P / d log g, by the chain rule through k = g o / (1 + g o). The
    // clamp bounds the step on a very unlikely token.
    const float slope = std::clamp(
        outer * (link.share - before[i]) * link.weight * (1.0f - link.weight),
        -1.0f, 1.0f);
    float& shared = shared_[link.kind.shared];
    shared = std::clamp(shared * SmallExp(kSharedRate * slope),
                        1.0f / kMaxSharedFactor, kMaxSharedFactor);
    float& fast = fast_[link.kind.fast];
    fast = std::clamp(fast * SmallExp(kRequestRate * slope),
                      1.0f / kMaxRequestFactor, kMaxRequestFactor);
    outer *= 1.0f - link.weight;
  }
  return p;
}

}  // namespace foretoken
