// The sampler's order and histogram levels: an edge found by histograms is the
// edge that a sort finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "common/infer/cuda/kernels/sample_order.h"
#include "common/sampling/filter.h"

namespace foretoken::device {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(KernelIndexSamplerTest, KeysSortAsCandidatesDo) {
  const float values[] = {-kInfinity, -3.5f,  -1e-40f, -0.0f,    0.0f,
                          1e-40f,     0.125f, 7.0f,    kInfinity};
  for (const float a : values) {
    for (const float b : values) {
      for (const int32_t id_a : {0, 5, 70000}) {
        for (const int32_t id_b : {0, 5, 70000}) {
          const bool before = ComesBefore({a, id_a}, {b, id_b});
          EXPECT_EQ(SortKey(CleanLogit(a), id_a) > SortKey(CleanLogit(b), id_b),
                    before)
              << a << " " << id_a << ", " << b << " " << id_b;
        }
      }
    }
  }
  EXPECT_EQ(CleanLogit(std::nanf("")), -kInfinity);
}

TEST(KernelIndexSamplerTest, KeysGiveBackValueAndId) {
  for (const float x : {-kInfinity, -2.0f, 0.0f, 3.0f, kInfinity}) {
    for (const int32_t id : {0, 1, (1 << kMaxIdBits) - 1}) {
      EXPECT_EQ(ValueOfKey(SortKey(x, id)), x);
      EXPECT_EQ(IdOfKey(SortKey(x, id)), id);
    }
  }
}

TEST(KernelIndexSamplerTest, ScaledIsTheSamplersOwn) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0.0f, 5.0f);
  for (int i = 0; i < 1000; ++i) {
    const float x = normal(random);
    EXPECT_EQ(Scaled(x, 20.0f, 0.7f), ScaledLogit(x, 20.0f, 0.7f));
  }
  EXPECT_EQ(Scaled(kInfinity, kInfinity, 1.0f), 0.0f);
}

// The levels as the kernel goes through them, one candidate after another.
SampleEdge EdgeByHistograms(const std::vector<float>& logits, float largest,
                            float temperature, uint64_t limit,
                            const std::vector<uint64_t>& mass) {
  int edges[kSampleLevels] = {};
  SampleEdge edge;
  for (int level = 0; level < kSampleLevels; ++level) {
    std::vector<uint64_t> bins(kSampleBins, 0);
    for (size_t id = 0; id < logits.size(); ++id) {
      if (mass[id] == 0) continue;
      const float scaled = Scaled(logits[id], largest, temperature);
      const uint32_t ordered = OrderedBits(logits[id]);
      bool inside = true;
      for (int i = 0; i < level; ++i) {
        inside = inside && SampleBin(i, scaled, ordered,
                                     static_cast<int32_t>(id)) == edges[i];
      }
      if (!inside) continue;
      const int bin =
          SampleBin(level, scaled, ordered, static_cast<int32_t>(id));
      EXPECT_GE(bin, 0);
      EXPECT_LT(bin, kSampleBins);
      bins[bin] += level < kFirstIdLevel ? mass[id] : 1;
    }
    int bin = 0;
    while (bins[bin] < limit) limit -= bins[bin++];
    edges[level] = bin;
    if (level == kFirstIdLevel - 1) {
      edge.ordered = OrderedFromBins(edges);
      uint64_t tie_mass = 0;
      for (size_t id = 0; id < logits.size(); ++id) {
        if (OrderedBits(logits[id]) == edge.ordered && mass[id] > 0) {
          tie_mass = mass[id];
        }
      }
      limit = TiesNeeded(limit, tie_mass);
    }
  }
  edge.last_id = edges[kFirstIdLevel] << 11 | edges[kFirstIdLevel + 1];
  return edge;
}

TEST(KernelIndexSamplerTest, AnEdgeFoundByHistogramsIsTheOneThatASortFinds) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  for (int trial = 0; trial < 60; ++trial) {
    const int size = 1 + static_cast<int>(random() % 5000);
    std::vector<float> logits(size);
    for (float& x : logits) {
      x = normal(random);
      if (trial % 3 == 0) x = std::round(x);  // many ties
      if (random() % 50 == 0) x = -kInfinity;
      x = CleanLogit(x);
    }
    const float largest = *std::max_element(logits.begin(), logits.end());
    const float temperature = 0.3f + static_cast<float>(random() % 20) / 10.0f;
    const bool count = trial % 2 == 0;
    std::vector<uint64_t> mass(size);
    uint64_t total = 0;
    for (int id = 0; id < size; ++id) {
      mass[id] =
          count ? 1 : FixedWeight(Scaled(logits[id], largest, temperature));
      total += mass[id];
    }
    if (total == 0) continue;
    const uint64_t limit = 1 + random() * uint64_t{4294967296} % total;
    const SampleEdge edge =
        EdgeByHistograms(logits, largest, temperature, limit, mass);

    std::vector<Candidate> sorted;
    for (int id = 0; id < size; ++id) sorted.push_back({logits[id], id});
    std::sort(sorted.begin(), sorted.end(), ComesBefore);
    uint64_t before = 0;
    for (const Candidate& c : sorted) {
      ASSERT_EQ(edge.Keeps(c.logit, c.id), before < limit)
          << "trial " << trial << " id " << c.id;
      before += mass[c.id];
    }
  }
}

TEST(KernelIndexSamplerTest, IdLevelsReachTheLargestVocabulary) {
  const int32_t last = (1 << kMaxIdBits) - 1;
  EXPECT_EQ(SampleBin(4, 0, 0, last), kSampleBins - 1);
  EXPECT_EQ(SampleBin(5, 0, 0, last), kSampleBins - 1);
  EXPECT_EQ(SampleBin(4, 0, 0, last) << 11 | SampleBin(5, 0, 0, last), last);
}

}  // namespace
}  // namespace foretoken::device
