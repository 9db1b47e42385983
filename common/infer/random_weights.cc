#include "common/infer/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/base/mix.h"
#include "common/infer/block_quants.h"

namespace foretoken {
namespace {

struct Uniform {
  float centre;
  float half_width;
};

Uniform RangeOf(const TensorSlot& slot, const ModelConfig& config) {
  // The half width of a uniform distribution is sqrt(3) standard deviations.
  // Variance 1/cols keeps activations near 1; the standard deviation of a
  // uniform distribution is its half width over sqrt(3).
  const float matrix = std::sqrt(3.0f / static_cast<float>(slot.cols));
  switch (slot.role) {
    case TensorRole::kEmbedding:
    case TensorRole::kMatrix:
      return {0.0f, matrix};
    case TensorRole::kResidualMatrix:
      // Residual matrices add up over layers (two a layer), so each is scaled
      // down by the square root of their number.
      return {0.0f,
              matrix / std::sqrt(2.0f * static_cast<float>(config.n_layers))};
    case TensorRole::kNorm:
      return {1.0f, 0.1f};
    case TensorRole::kBias:
      return {0.0f, 0.1f};
  }
  return {0.0f, 0.0f};
}

// Four elements per 64-bit word: 16 random bits suffice for a weight.
template <typename Element, typename Narrow>
void Fill(Uniform range, uint64_t key, int64_t count, uint8_t* data,
          Narrow narrow) {
  const float scale = range.half_width / 32768.0f;  // of an int16
  for (int64_t i = 0; i < count; i += 4) {
    uint64_t word = MixRandom(key, static_cast<uint64_t>(i / 4));
    Element elements[4];
    // The order of bytes in the word defines the values, so they are equal on
    // every little-endian machine.
    for (Element& element : elements) {
      const int16_t bits = static_cast<int16_t>(word & 0xffffu);
      word >>= 16;
      element = narrow(range.centre + scale * static_cast<float>(bits));
    }
    const int64_t left = count - i < 4 ? count - i : 4;
    std::memcpy(data + i * static_cast<int64_t>(sizeof(Element)), elements,
                static_cast<size_t>(left) * sizeof(Element));
  }
}

// Blocks of random quants whose scales span the range.
void FillBlocks(Uniform range, WeightType type, uint64_t key, int64_t count,
                uint8_t* data) {
  // Matrices only, which are centred at 0.
  FORETOKEN_CHECK(range.centre == 0.0f);
  const int64_t bytes = WeightTypeBytes(type, count);
  for (int64_t i = 0; i < bytes; i += 8) {
    const uint64_t word = MixRandom(key, static_cast<uint64_t>(i / 8));
    std::memcpy(data + i, &word,
                static_cast<size_t>(std::min<int64_t>(8, bytes - i)));
  }
  const int64_t block_bytes = WeightTypeFormat(type).block_bytes;
  for (int64_t i = 0; i < bytes; i += block_bytes) {
    SetUniformScales(type, range.half_width, data + i);
  }
}

}  // namespace

uint64_t MixRandom(uint64_t key, uint64_t counter) {
  return MixBits(key + (counter + 1) * kMixStep);
}

void FillRandomTensor(const TensorSlot& slot, const ModelConfig& config,
                      WeightType type, uint64_t key, uint8_t* data) {
  const Uniform range = RangeOf(slot, config);
  const int64_t count = slot.rows * slot.cols;
  switch (type) {
    case WeightType::kFloat32:
      Fill<float>(range, key, count, data, [](float value) { return value; });
      return;
    case WeightType::kFloat16:
      Fill<uint16_t>(range, key, count, data,
                     [](float value) { return Float16FromFloat(value); });
      return;
    case WeightType::kBFloat16:
      Fill<uint16_t>(range, key, count, data,
                     [](float value) { return BFloat16FromFloat(value); });
      return;
    default:
      return FillBlocks(range, type, key, count, data);
  }
}

}  // namespace foretoken
