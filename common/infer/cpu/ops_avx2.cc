// AVX2 with FMA (Haswell, Zen and later).
#include <immintrin.h>

#include "common/infer/cpu/ops.h"

namespace foretoken {
namespace {

struct V {
  static constexpr int kLanes = 8;
  using Reg = __m256;
  using Int = __m256i;

  static Reg Zero() { return _mm256_setzero_ps(); }
  static Reg Set(float x) { return _mm256_set1_ps(x); }
  static Reg Load(const float* p) { return _mm256_loadu_ps(p); }
  static Reg LoadAligned(const float* p) { return _mm256_load_ps(p); }
  static void Store(float* p, Reg x) { _mm256_storeu_ps(p, x); }
  static float First(Reg x) { return _mm256_cvtss_f32(x); }
  static Reg Add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg Sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
  static Reg Mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static Reg Div(Reg a, Reg b) { return _mm256_div_ps(a, b); }
  static Reg Max(Reg a, Reg b) { return _mm256_max_ps(a, b); }
  static Reg Min(Reg a, Reg b) { return _mm256_min_ps(a, b); }
  static Reg Fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg Round(Reg x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // 2^n for whole n in -126..127.
  static Reg Pow2(Reg n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }
  static Reg LoadBf16(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
        16));
  }
  static Reg LoadInt8(const int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static void StoreBf16(uint16_t* p, Reg x) {
    const Int bits = _mm256_castps_si256(x);
    const Int high = _mm256_srli_epi32(bits, 16);
    const Int even = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const Int rounded = _mm256_srli_epi32(
        _mm256_add_epi32(bits,
                         _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff))),
        16);
    const Int nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const Int quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const Int chosen = _mm256_blendv_epi8(rounded, quiet, nan);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_packus_epi32(_mm256_castsi256_si128(chosen),
                                      _mm256_extracti128_si256(chosen, 1)));
  }
  // Lanes from `count` on become `rest`; count may be any number.
  static Reg KeepFirst(Reg x, int32_t count, float rest) {
    const Reg keep = _mm256_castsi256_ps(
        _mm256_cmpgt_epi32(_mm256_set1_epi32(count), Iota()));
    return _mm256_blendv_ps(_mm256_set1_ps(rest), x, keep);
  }
  static Int SetInt(int32_t x) { return _mm256_set1_epi32(x); }
  static Int LoadAlignedInt(const char* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  // The lower (higher) bf16 of each pair, as fp32.
  static Reg LowHalves(Int pairs) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
  }
  static Reg HighHalves(Int pairs) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(pairs, SetInt(static_cast<int32_t>(0xffff0000))));
  }
  static Int Iota() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
  static Int AddInt(Int a, int32_t b) {
    return _mm256_add_epi32(a, _mm256_set1_epi32(b));
  }
  static void StoreInt(int32_t* p, Int x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
  }
  static void KeepLarger(Reg x, Int index, Reg& top, Int& top_index) {
    const Reg larger = _mm256_cmp_ps(x, top, _CMP_GT_OQ);
    top = _mm256_blendv_ps(top, x, larger);
    top_index =
        _mm256_blendv_epi8(top_index, index, _mm256_castps_si256(larger));
  }
};

constexpr int kGemmRows = 4;
constexpr int kAttendQueries = 2;

#include "common/infer/cpu/quant_avx2.inc"
// After the vector types that it is written over.
#include "common/infer/cpu/ops_simd.inc"

constexpr CpuOps kOps = VectorOps<Bf16PairStep, Fp32Step<2>>(CpuIsa::kAvx2);

}  // namespace

const CpuOps* Avx2Ops() { return &kOps; }

}  // namespace foretoken
