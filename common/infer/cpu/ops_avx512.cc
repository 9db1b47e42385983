// AVX-512 without BF16 (Skylake server and later).
#include <immintrin.h>

#include "common/infer/cpu/ops.h"

namespace foretoken {
namespace {

#include "common/infer/cpu/quant_avx2.inc"
#include "common/infer/cpu/vector_avx512.inc"
// After the vector types that it is written over.
#include "common/infer/cpu/ops_simd.inc"

constexpr CpuOps kOps = VectorOps<Bf16PairStep, Fp32Step<4>>(CpuIsa::kAvx512);

}  // namespace

const CpuOps* Avx512Ops() { return &kOps; }

}  // namespace foretoken
