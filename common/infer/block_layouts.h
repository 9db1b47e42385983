// Layouts of the quantised blocks of GGUF files, for block_quants.cc and
// block_encoding.cc alone.
//
// Source: ggml, ggml-common.h.
#ifndef FORETOKEN_COMMON_INFER_BLOCK_LAYOUTS_H_
#define FORETOKEN_COMMON_INFER_BLOCK_LAYOUTS_H_

#include <cstdint>
#include <cstring>

#include "common/infer/weight_types.h"

namespace foretoken {

inline constexpr int kBlock = 32;  // elements of a Q8_0, Q4_x or Q5_x block
inline constexpr int kSuperBlock = 256;  // of a K block

// Blocks as they lie in the file; every member is a byte, so any address will
// do.
struct Half {
  uint8_t bytes[2];
  uint16_t Bits() const {
    uint16_t bits;
    std::memcpy(&bits, bytes, sizeof(bits));
    return bits;
  }
  float Get() const { return FloatFromFloat16(Bits()); }
  bool IsFinite() const { return (Bits() & 0x7c00) != 0x7c00; }
  // Rounds, and returns what Get() will.
  float Set(float value) {
    const uint16_t bits = Float16FromFloat(value);
    std::memcpy(bytes, &bits, sizeof(bits));
    return FloatFromFloat16(bits);
  }
};

struct BlockQ4_0 {
  Half d;
  uint8_t qs[kBlock / 2];  // low nibbles: the first half of the elements
};
struct BlockQ4_1 {
  Half d, m;
  uint8_t qs[kBlock / 2];
};
struct BlockQ5_0 {
  Half d;
  uint8_t qh[4];  // the fifth bits
  uint8_t qs[kBlock / 2];
};
struct BlockQ5_1 {
  Half d, m;
  uint8_t qh[4];
  uint8_t qs[kBlock / 2];
};
struct BlockQ8_0 {
  Half d;
  int8_t qs[kBlock];
};
struct BlockQ4K {
  Half d, dmin;
  uint8_t scales[12];  // eight scales and eight minima of six bits
  uint8_t qs[kSuperBlock / 2];
};
struct BlockQ5K {
  Half d, dmin;
  uint8_t scales[12];
  uint8_t qh[kSuperBlock / 8];
  uint8_t qs[kSuperBlock / 2];
};
struct BlockQ6K {
  uint8_t ql[kSuperBlock / 2];
  uint8_t qh[kSuperBlock / 4];
  int8_t scales[kSuperBlock / 16];
  Half d;
};
static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4K) == 144);
static_assert(sizeof(BlockQ5K) == 176 && sizeof(BlockQ6K) == 210);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_BLOCK_LAYOUTS_H_
