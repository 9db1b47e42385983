// AVX2 with FMA (Haswell, Zen and later).
#include <immintrin.h>

#include "common/infer/cpu/ops.h"

namespace foretoken {
namespace {

#include "common/infer/cpu/quant_avx2.inc"
#include "common/infer/cpu/vector_avx2.inc"
// After the vector types that it is written over.
#include "common/infer/cpu/ops_simd.inc"

constexpr CpuOps kOps = VectorOps<Bf16PairStep, Fp32Step<2>>(CpuIsa::kAvx2);

}  // namespace

const CpuOps* Avx2Ops() { return &kOps; }

}  // namespace foretoken
