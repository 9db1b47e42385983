// AVX-VNNI's kernels for machines with AVX-512 VNNI.
#ifndef FORETOKEN_TESTS_UNIT_INFER_AVXVNNI_EVEX_H_
#define FORETOKEN_TESTS_UNIT_INFER_AVXVNNI_EVEX_H_

#include "common/infer/cpu/ops.h"

namespace foretoken::testing {

// Runs where CpuIsa::kAvx512Vnni does.
const CpuOps* AvxVnniEvexOps();

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_INFER_AVXVNNI_EVEX_H_
