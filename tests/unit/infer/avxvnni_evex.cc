// AVX-VNNI's ops with its one new instruction in the encoding of AVX-512, so
// that machines without AVX-VNNI test them.
#include "tests/unit/infer/avxvnni_evex.h"

#include <immintrin.h>

namespace foretoken::testing {
namespace {

#include "common/infer/cpu/quant_avxvnni.inc"
#include "common/infer/cpu/vector_avx2.inc"
// After the vector types that it is written over.
#include "common/infer/cpu/ops_simd.inc"

constexpr CpuOps kOps = VectorOps<Bf16PairStep, Fp32Step<2>>(CpuIsa::kAvxVnni);

}  // namespace

const CpuOps* AvxVnniEvexOps() { return &kOps; }

}  // namespace foretoken::testing
