// AVX2 with VNNI in 256 bits (Alder Lake and later, Zen 5).
#include <immintrin.h>

#include "common/infer/cpu/ops.h"

namespace foretoken {
namespace {

#include "common/infer/cpu/quant_avxvnni.inc"
#include "common/infer/cpu/vector_avx2.inc"
// After the vector types that it is written over.
#include "common/infer/cpu/ops_simd.inc"

constexpr CpuOps kOps = VectorOps<Bf16PairStep, Fp32Step<2>>(CpuIsa::kAvxVnni);

}  // namespace

const CpuOps* AvxVnniOps() { return &kOps; }

}  // namespace foretoken
