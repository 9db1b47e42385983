// The order in which the sampler sees the logits of a row, and what its filters
// keep, as functions of one logit. common/sampling/{sampler,filter}.cc defines
// the meaning; here are the pieces that a thread block computes it from without
// sorting: as the masses (counts, weights of 2^-40) are whole numbers, a filter
// is the edge where a running sum reaches a limit, found by histograms.
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_SAMPLE_ORDER_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_SAMPLE_ORDER_H_

#include <cstdint>

#include "common/infer/cuda/device_engine.h"
#include "common/sampling/fixed_math.h"

namespace foretoken::device {

inline constexpr int kSampleBins = 2048;
inline constexpr int kMaxIdBits = 22;  // a vocabulary of 2^22 at most

FORETOKEN_HOST_DEVICE inline float MinusInfinity() {
  return internal::FloatFromBits(0xff800000u);
}

// NaN counts as -infinity; both zeros are one number.
FORETOKEN_HOST_DEVICE inline float CleanLogit(float x) {
  return x == x ? internal::Add(x, 0.0f) : MinusInfinity();
}

// Rises with x; for clean x equal only if x is.
FORETOKEN_HOST_DEVICE inline uint32_t OrderedBits(float x) {
  const uint32_t bits = internal::FloatBits(x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
FORETOKEN_HOST_DEVICE inline float FromOrderedBits(uint32_t ordered) {
  return internal::FloatFromBits(ordered >> 31 ? ordered & 0x7fffffffu
                                               : ~ordered);
}

// Larger for what comes first: by value descending, then id ascending.
FORETOKEN_HOST_DEVICE inline uint64_t SortKey(float clean, int32_t id) {
  return uint64_t{OrderedBits(clean)} << 32 |
         static_cast<uint32_t>(~static_cast<uint32_t>(id));
}
FORETOKEN_HOST_DEVICE inline int32_t IdOfKey(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}
FORETOKEN_HOST_DEVICE inline float ValueOfKey(uint64_t key) {
  return FromOrderedBits(static_cast<uint32_t>(key >> 32));
}

// ScaledLogit of common/sampling/filter.h.
FORETOKEN_HOST_DEVICE inline float Scaled(float clean, float largest,
                                          float temperature) {
  return clean == largest
             ? 0.0f
             : internal::Div(internal::Add(clean, -largest), temperature);
}

// The last candidate that a filter keeps: all with a larger logit stay, and of
// those with this one the ids up to last_id.
struct SampleEdge {
  uint32_t ordered = 0;
  int32_t last_id = 0x7fffffff;
  FORETOKEN_HOST_DEVICE bool Keeps(float clean, int32_t id) const {
    const uint32_t bits = OrderedBits(clean);
    return bits > ordered || (bits == ordered && id <= last_id);
  }
};

// Six histograms find an edge, each inside the edge bin of the one before: by
// distance from the largest, by three digits of the ordered bits, by two digits
// of the id. Bins ascend in the order of candidates. (Where few candidates
// share the first edge bin, a sort of them takes the place of the other five.)
inline constexpr int kSampleLevels = 6;
inline constexpr int kFirstIdLevel = 4;

FORETOKEN_HOST_DEVICE inline int SampleBin(int level, float scaled,
                                           uint32_t ordered, int32_t id) {
  switch (level) {
    case 0: {  // 64 bins to 1.0; the last takes all that is further away
      const float distance = -scaled;
      return distance < kSampleBins / 64.0f
                 ? static_cast<int>(internal::Mul(distance, 64.0f))
                 : kSampleBins - 1;
    }
    case 1:
      return kSampleBins - 1 - static_cast<int>(ordered >> 21);
    case 2:
      return kSampleBins - 1 - static_cast<int>(ordered >> 10 & 0x7ff);
    case 3:
      return 0x3ff - static_cast<int>(ordered & 0x3ff);
    case 4:
      return id >> 11;
    default:
      return id & 0x7ff;
  }
}

// The bits whose digits the edge bins of levels 1 to 3 are.
FORETOKEN_HOST_DEVICE inline uint32_t OrderedFromBins(const int* edges) {
  return static_cast<uint32_t>(kSampleBins - 1 - edges[1]) << 21 |
         static_cast<uint32_t>(kSampleBins - 1 - edges[2]) << 10 |
         static_cast<uint32_t>(0x3ff - edges[3]);
}

// How many of the candidates that share the edge's logit, `mass` each, are
// needed to reach `missing` (at least 1).
FORETOKEN_HOST_DEVICE inline uint64_t TiesNeeded(uint64_t missing,
                                                 uint64_t mass) {
  return (missing + mass - 1) / mass;
}

// A logit after the penalties; `count`: in the output so far.
FORETOKEN_HOST_DEVICE inline float Penalised(float clean, int32_t count,
                                             const DeviceSampling& sampling) {
  const float r = sampling.repetition_penalty;
  if (r != 1.0f) {
    clean = clean > 0.0f ? internal::Div(clean, r) : internal::Mul(clean, r);
  }
  if (count > 0) {
    clean = internal::Add(clean, -internal::Mul(sampling.frequency_penalty,
                                                static_cast<float>(count)));
    clean = internal::Add(clean, -sampling.presence_penalty);
  }
  return clean;
}

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_SAMPLE_ORDER_H_
