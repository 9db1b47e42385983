// AVX-512 without BF16 (Skylake server and later).
#include <immintrin.h>

#include "common/infer/cpu/ops.h"

namespace foretoken {
namespace {

#include "common/infer/cpu/vector_avx512.inc"

// A pair of bf16 products as two fused multiply-adds in fp32, even k first.
// The product of two bf16 is exact in fp32, so this rounds as ops_scalar.cc.
struct GemmBf16Step {
  static constexpr int kRows = 6;
  static constexpr int kVectors = 2;
  struct Weight {
    __m512 even, odd;
  };
  using Row = Weight;
  static Weight Split(__m512i pairs) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(
                pairs, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000))))};
  }
  static Weight LoadWeight(const char* p) {
    return Split(_mm512_load_si512(p));
  }
  static Row Broadcast(const char* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof(pair));
    return Split(_mm512_set1_epi32(pair));
  }
  static V::Reg Fma(V::Reg acc, Weight w, Row x) {
    acc = _mm512_fmadd_ps(x.even, w.even, acc);
    return _mm512_fmadd_ps(x.odd, w.odd, acc);
  }
};

#include "common/infer/cpu/ops_simd.inc"

constexpr CpuOps kOps = {
    CpuIsa::kAvx512,
    "avx512",
    Gemm<GemmBf16Step>,
    Gemm<GemmFp32Step>,
    Attend<uint16_t>,
    Attend<float>,
    RmsNorm,
    ToBf16,
    Add,
    Scale,
    SwiGlu,
    Rope,
    ArgMax,
    Exp,
    StreamSum,
};

}  // namespace

const CpuOps* Avx512Ops() { return &kOps; }

}  // namespace foretoken
