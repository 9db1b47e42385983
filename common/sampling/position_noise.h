// Gumbel noise as a pure function of (seed, position, token id).
//
// The only definition of the counter layout, the mapping to uniforms and the
// logarithm. Verifier, draft model and every device get the same bits from
// here; no draw depends on how many others were made.
//
//   key     = seed (low word, high word)
//   counter = (token id / 4, position low word, position high word, 0)
//   word    = word (token id mod 4) of the four from Philox4x32-10
//   E       = -log(1 - v), v = (word + 1/2) / 2^32       (exponential)
//   noise   = -log(E)                                    (Gumbel)
//
// Small words give large noise. v keeps 24 significant bits down to 2^-33, so
// that ties among the highest scores of a large vocabulary are as rare as 32
// bits allow. 0 < E < 23.6 and -3.2 < noise < 22.9, always finite.
//
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11
// (Philox); the Gumbel-max trick. Thread-safe.
#ifndef FORETOKEN_COMMON_SAMPLING_POSITION_NOISE_H_
#define FORETOKEN_COMMON_SAMPLING_POSITION_NOISE_H_

#include <cstdint>

#include "common/base/types.h"
#include "common/sampling/fixed_math.h"

namespace foretoken {

struct PhiloxWords {
  uint32_t word[4];
};

FORETOKEN_HOST_DEVICE inline PhiloxWords Philox4x32(PhiloxWords counter,
                                                    uint32_t key0,
                                                    uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter.word[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter.word[2];
    const uint32_t high0 = static_cast<uint32_t>(product0 >> 32);
    const uint32_t high1 = static_cast<uint32_t>(product1 >> 32);
    counter = {{high1 ^ counter.word[1] ^ key0, static_cast<uint32_t>(product1),
                high0 ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// The words of token ids 4 * block .. 4 * block + 3.
FORETOKEN_HOST_DEVICE inline PhiloxWords NoiseBlock(uint64_t seed,
                                                    int64_t position,
                                                    uint32_t block) {
  const uint64_t at = static_cast<uint64_t>(position);
  return Philox4x32(
      {{block, static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0}},
      static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

FORETOKEN_HOST_DEVICE inline float GumbelFromWord(uint32_t word) {
  constexpr float kUnit = 1.0f / 4294967296.0f;  // 2^-32
  float exponential;
  if (word < 0x40000000u) {  // v < 1/4: log1p, as twice an atanh
    const float v =
        internal::Mul(internal::Add(static_cast<float>(word), 0.5f), kUnit);
    exponential =
        internal::TwiceAtanh(internal::Div(v, internal::Add(2.0f, -v)));
  } else {
    const float w =
        internal::Mul(internal::Add(static_cast<float>(~word), 0.5f), kUnit);
    exponential = -FixedLog(w);
  }
  return -FixedLog(exponential);
}

// An upper bound of GumbelFromWord(word) in a few instructions: E > v, and v >=
// 2^-(zeros + 1) for a word with `zeros` leading zero bits.
FORETOKEN_HOST_DEVICE inline float GumbelUpperBound(uint32_t word) {
#if defined(__CUDA_ARCH__)
  const int zeros = __clz(static_cast<int>(word));
#else
  const int zeros = word == 0 ? 32 : __builtin_clz(word);
#endif
  // Slightly more than ln 2, to cover the rounding of the exact value.
  return internal::Mul(static_cast<float>(zeros + 1), 0.6932f);
}
inline constexpr float kMaxGumbel = 23.0f;  // bound over all words

FORETOKEN_HOST_DEVICE inline float GumbelNoise(uint64_t seed, int64_t position,
                                               TokenId token) {
  const uint32_t id = static_cast<uint32_t>(token);
  return GumbelFromWord(NoiseBlock(seed, position, id / 4).word[id % 4]);
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SAMPLING_POSITION_NOISE_H_
