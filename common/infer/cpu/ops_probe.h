// A digest of what the ops compute on fixed inputs: two machines whose
// arithmetic differs anywhere that matters (an instruction's inner order, a
// library's cosine) get different numerics fingerprints.
#ifndef FORETOKEN_COMMON_INFER_CPU_OPS_PROBE_H_
#define FORETOKEN_COMMON_INFER_CPU_OPS_PROBE_H_

#include <string>

#include "common/infer/cpu/ops.h"
#include "common/infer/model_config.h"

namespace foretoken {

// 16 hex digits. Products of bf16 are left out for a model that has none.
std::string ProbeOps(const CpuOps& ops, const ModelConfig& config,
                     bool bf16_products);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_OPS_PROBE_H_
