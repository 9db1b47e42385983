#include "common/infer/cpu/quant_pack.h"

#include "common/base/check.h"
#include "common/infer/block_quants.h"
#include "common/infer/cpu/quant_layout.h"

namespace foretoken {
namespace {

void PutNibbles(const QuantPart& part, int c, QuantNibbles& low) {
  for (int i = 0; i < kQuantBlock / 2; ++i) {
    low[i / 4][c][i % 4] = static_cast<uint8_t>(
        (part.quants[i] & 0xf) | part.quants[i + kQuantBlock / 2] << 4);
  }
}

void PutFifthBits(const QuantPart& part, int c, QuantFifthBits& fifth) {
  for (int i = 0; i < kQuantBlock; ++i) {
    // OR, into memory that is zero: several elements share a byte.
    fifth[c][i % 4] |=
        static_cast<uint8_t>((part.quants[i] >> 4 & 1) << (i / 4));
  }
}

// Puts one block of column `c` into its place.
void Put(const QuantPart& part, int c, int, UnitQ8_0& unit) {
  unit.scale[c] = part.block_scale;
  for (int i = 0; i < kQuantBlock; ++i) {
    unit.quants[i / 4][c][i % 4] = part.quants[i];
  }
}
void Put(const QuantPart& part, int c, int, UnitQ4_0& unit) {
  unit.scale[c] = part.block_scale;
  PutNibbles(part, c, unit.low);
}
void Put(const QuantPart& part, int c, int, UnitQ4_1& unit) {
  unit.scale[c] = part.block_scale;
  unit.min[c] = part.block_min;
  PutNibbles(part, c, unit.low);
}
void Put(const QuantPart& part, int c, int, UnitQ5_0& unit) {
  unit.scale[c] = part.block_scale;
  PutNibbles(part, c, unit.low);
  PutFifthBits(part, c, unit.fifth);
}
void Put(const QuantPart& part, int c, int, UnitQ5_1& unit) {
  unit.scale[c] = part.block_scale;
  unit.min[c] = part.block_min;
  PutNibbles(part, c, unit.low);
  PutFifthBits(part, c, unit.fifth);
}
template <typename Unit>
void PutWithMinima(const QuantPart& part, int c, int index, Unit& unit) {
  unit.scale[c] = part.block_scale;
  unit.min[c] = part.block_min;
  unit.scales[index][c] = static_cast<uint8_t>(part.scales[0]);
  unit.mins[index / 2][c][index % 2] = part.min;
  PutNibbles(part, c, unit.parts[index].low);
}
void Put(const QuantPart& part, int c, int index, UnitQ4K& unit) {
  PutWithMinima(part, c, index, unit);
}
void Put(const QuantPart& part, int c, int index, UnitQ5K& unit) {
  PutWithMinima(part, c, index, unit);
  PutFifthBits(part, c, unit.parts[index].fifth);
}
void Put(const QuantPart& part, int c, int index, UnitQ6K& unit) {
  unit.scale[c] = part.block_scale;
  PutNibbles(part, c, unit.parts[index].low);
  for (int h = 0; h < 2; ++h) {
    unit.scales[index][c][h] = part.scales[h];
    for (int i = 0; i < kQuantBlock / 2; ++i) {
      unit.parts[index].high[h][c][i % 4] |= static_cast<uint8_t>(
          part.quants[h * kQuantBlock / 2 + i] >> 4 << (2 * (i / 4)));
    }
  }
}

// Their inverses: one block of column `c`.
void GetNibbles(const QuantNibbles& low, int c, QuantPart& part) {
  for (int i = 0; i < kQuantBlock / 2; ++i) {
    part.quants[i] = low[i / 4][c][i % 4] & 0xf;
    part.quants[i + kQuantBlock / 2] = low[i / 4][c][i % 4] >> 4;
  }
}

void GetFifthBits(const QuantFifthBits& fifth, int c, QuantPart& part) {
  for (int i = 0; i < kQuantBlock; ++i) {
    part.quants[i] |=
        static_cast<uint8_t>((fifth[c][i % 4] >> (i / 4) & 1) << 4);
  }
}

void Get(const UnitQ8_0& unit, int c, int, QuantPart& part) {
  for (int i = 0; i < kQuantBlock; ++i) {
    part.quants[i] = unit.quants[i / 4][c][i % 4];
  }
}
void Get(const UnitQ4_0& unit, int c, int, QuantPart& part) {
  GetNibbles(unit.low, c, part);
}
void Get(const UnitQ4_1& unit, int c, int, QuantPart& part) {
  part.block_min = unit.min[c];
  GetNibbles(unit.low, c, part);
}
void Get(const UnitQ5_0& unit, int c, int, QuantPart& part) {
  GetNibbles(unit.low, c, part);
  GetFifthBits(unit.fifth, c, part);
}
void Get(const UnitQ5_1& unit, int c, int, QuantPart& part) {
  part.block_min = unit.min[c];
  GetNibbles(unit.low, c, part);
  GetFifthBits(unit.fifth, c, part);
}
template <typename Unit>
void GetWithMinima(const Unit& unit, int c, int index, QuantPart& part) {
  part.block_min = unit.min[c];
  part.scales[0] = part.scales[1] = static_cast<int8_t>(unit.scales[index][c]);
  part.min = unit.mins[index / 2][c][index % 2];
  GetNibbles(unit.parts[index].low, c, part);
}
void Get(const UnitQ4K& unit, int c, int index, QuantPart& part) {
  GetWithMinima(unit, c, index, part);
}
void Get(const UnitQ5K& unit, int c, int index, QuantPart& part) {
  GetWithMinima(unit, c, index, part);
  GetFifthBits(unit.parts[index].fifth, c, part);
}
void Get(const UnitQ6K& unit, int c, int index, QuantPart& part) {
  GetNibbles(unit.parts[index].low, c, part);
  for (int h = 0; h < 2; ++h) {
    part.scales[h] = unit.scales[index][c][h];
    for (int i = 0; i < kQuantBlock / 2; ++i) {
      part.quants[h * kQuantBlock / 2 + i] |= static_cast<uint8_t>(
          (unit.parts[index].high[h][c][i % 4] >> (2 * (i / 4)) & 3) << 4);
    }
  }
}

template <typename Unit>
void UnpackColumn(WeightType type, const uint8_t* strip, int64_t k, int column,
                  float* out) {
  const int64_t parts = WeightTypeFormat(type).block / kQuantBlock;
  const Unit* units = reinterpret_cast<const Unit*>(strip);
  for (int64_t i = 0; i < k / kQuantBlock; ++i) {
    QuantPart part;
    part.block_scale = units[i / parts].scale[column];
    Get(units[i / parts], column, static_cast<int>(i % parts), part);
    DequantisePart(type, part, out + i * kQuantBlock);
  }
}

template <typename Unit>
void PackStrip(WeightType type, const uint8_t* const* columns, int64_t k,
               uint8_t* out) {
  const int64_t parts = WeightTypeFormat(type).block / kQuantBlock;
  Unit* units = reinterpret_cast<Unit*>(out);
  for (int64_t i = 0; i < k / kQuantBlock; ++i) {
    for (int c = 0; c < kQuantColumns; ++c) {
      // Left zero, which multiplies to nothing.
      if (columns[c] == nullptr) continue;
      Put(UnpackQuants(type, columns[c], i), c, static_cast<int>(i % parts),
          units[i / parts]);
    }
  }
}

}  // namespace

int64_t QuantStripBytes(MatrixType type, int64_t k) {
  switch (type) {
    case MatrixType::kQ8_0:
      return k / kQuantBlock * static_cast<int64_t>(sizeof(UnitQ8_0));
    case MatrixType::kQ4_0:
      return k / kQuantBlock * static_cast<int64_t>(sizeof(UnitQ4_0));
    case MatrixType::kQ4_1:
      return k / kQuantBlock * static_cast<int64_t>(sizeof(UnitQ4_1));
    case MatrixType::kQ5_0:
      return k / kQuantBlock * static_cast<int64_t>(sizeof(UnitQ5_0));
    case MatrixType::kQ5_1:
      return k / kQuantBlock * static_cast<int64_t>(sizeof(UnitQ5_1));
    case MatrixType::kQ4_K:
      return k / kSuperBlock * static_cast<int64_t>(sizeof(UnitQ4K));
    case MatrixType::kQ5_K:
      return k / kSuperBlock * static_cast<int64_t>(sizeof(UnitQ5K));
    case MatrixType::kQ6_K:
      return k / kSuperBlock * static_cast<int64_t>(sizeof(UnitQ6K));
    case MatrixType::kFloat32:
    case MatrixType::kBFloat16:
      break;
  }
  FORETOKEN_CHECK(false);
  return 0;
}

void PackQuantStrip(WeightType type, const uint8_t* const* columns, int64_t k,
                    uint8_t* out) {
  switch (type) {
    case WeightType::kQ8_0:
      return PackStrip<UnitQ8_0>(type, columns, k, out);
    case WeightType::kQ4_0:
      return PackStrip<UnitQ4_0>(type, columns, k, out);
    case WeightType::kQ4_1:
      return PackStrip<UnitQ4_1>(type, columns, k, out);
    case WeightType::kQ5_0:
      return PackStrip<UnitQ5_0>(type, columns, k, out);
    case WeightType::kQ5_1:
      return PackStrip<UnitQ5_1>(type, columns, k, out);
    case WeightType::kQ4_K:
      return PackStrip<UnitQ4K>(type, columns, k, out);
    case WeightType::kQ5_K:
      return PackStrip<UnitQ5K>(type, columns, k, out);
    case WeightType::kQ6_K:
      return PackStrip<UnitQ6K>(type, columns, k, out);
    case WeightType::kFloat32:
    case WeightType::kFloat16:
    case WeightType::kBFloat16:
      break;
  }
  FORETOKEN_CHECK(false);
}

void UnpackQuantColumn(MatrixType type, const uint8_t* strip, int64_t k,
                       int column, float* out) {
  switch (type) {
    case MatrixType::kQ8_0:
      return UnpackColumn<UnitQ8_0>(WeightType::kQ8_0, strip, k, column, out);
    case MatrixType::kQ4_0:
      return UnpackColumn<UnitQ4_0>(WeightType::kQ4_0, strip, k, column, out);
    case MatrixType::kQ4_1:
      return UnpackColumn<UnitQ4_1>(WeightType::kQ4_1, strip, k, column, out);
    case MatrixType::kQ5_0:
      return UnpackColumn<UnitQ5_0>(WeightType::kQ5_0, strip, k, column, out);
    case MatrixType::kQ5_1:
      return UnpackColumn<UnitQ5_1>(WeightType::kQ5_1, strip, k, column, out);
    case MatrixType::kQ4_K:
      return UnpackColumn<UnitQ4K>(WeightType::kQ4_K, strip, k, column, out);
    case MatrixType::kQ5_K:
      return UnpackColumn<UnitQ5K>(WeightType::kQ5_K, strip, k, column, out);
    case MatrixType::kQ6_K:
      return UnpackColumn<UnitQ6K>(WeightType::kQ6_K, strip, k, column, out);
    case MatrixType::kFloat32:
    case MatrixType::kBFloat16:
      break;
  }
  FORETOKEN_CHECK(false);
}

}  // namespace foretoken
