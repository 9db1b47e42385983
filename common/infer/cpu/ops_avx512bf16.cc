// AVX-512 with BF16 (Zen 4, Cooper Lake, Sapphire Rapids and later).
#include <immintrin.h>

#include "common/infer/cpu/ops.h"

namespace foretoken {
namespace {

#include "common/infer/cpu/vector_avx512.inc"

// vdpbf16ps: both products of a pair in one instruction.
struct Bf16DotStep {
  static constexpr int kElements = 2;
  static constexpr int kRows = kGemmRows;
  static constexpr int kVectors = 4;
  using Weight = __m512bh;
  using Row = __m512bh;
  static Weight LoadWeight(const char* p) {
    return reinterpret_cast<__m512bh>(_mm512_load_si512(p));
  }
  static Row Broadcast(const char* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof(pair));
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }
  static V::Reg Fma(V::Reg acc, Weight w, Row x) {
    return _mm512_dpbf16_ps(acc, x, w);
  }
};

#include "common/infer/cpu/quant_vnni.inc"
// After the vector types that it is written over.
#include "common/infer/cpu/ops_simd.inc"

constexpr CpuOps kOps =
    VectorOps<Bf16DotStep, Fp32Step<4>>(CpuIsa::kAvx512Bf16);

}  // namespace

const CpuOps* Avx512Bf16Ops() { return &kOps; }

}  // namespace foretoken
