// AVX-512 with VNNI, without BF16 (Ice Lake).
#include <immintrin.h>

#include "common/infer/cpu/ops.h"

namespace foretoken {
namespace {

#include "common/infer/cpu/quant_vnni.inc"
#include "common/infer/cpu/vector_avx512.inc"
// After the vector types that it is written over.
#include "common/infer/cpu/ops_simd.inc"

constexpr CpuOps kOps =
    VectorOps<Bf16PairStep, Fp32Step<4>>(CpuIsa::kAvx512Vnni);

}  // namespace

const CpuOps* Avx512VnniOps() { return &kOps; }

}  // namespace foretoken
