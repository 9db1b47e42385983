// The CPU backend: the reference, and the default without a GPU.
//
// Row invariance: see ops.h (one chain per output), pass_plan.h (attention
// blocks addressed through the path), cpu_forward.h (rounding points).
// Logits of a row do not depend on the other rows of the pass, on threads, on
// chunking, or on where the KV came from, to the bit, within one
// numerics_fingerprint().
#ifndef FORETOKEN_COMMON_INFER_CPU_CPU_BACKEND_H_
#define FORETOKEN_COMMON_INFER_CPU_CPU_BACKEND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/infer/backend.h"
#include "common/infer/cpu/kv_type.h"
#include "common/infer/cpu/ops.h"
#include "common/infer/model_weights.h"
#include "common/infer/planned_backend.h"
#include "common/infer/weight_conversion.h"

namespace foretoken {

// kv_cache_bytes 0: room for kDefaultContexts sessions of full length, at most
// kDefaultKvBytes but no less than kv_cache_tokens. Memory is touched only as
// it is used.
struct CpuOptions : PlannedOptions {
  // Element type of matrices that are not quantised, of the activations they
  // are multiplied with and, unless kv_type is set, of the KV cache. fp32 also
  // expands quantised matrices.
  Precision precision = Precision::kBFloat16;
  // For draft models alone, whose numerics are free: see CpuModelOptions.
  WeightConversion conversion = WeightConversion::kKeep;
  int32_t head_size = 0;
  std::vector<TokenId> head_first = {};
  std::optional<KvType> kv_type = std::nullopt;
  // 0: as many as the machine has processors. Changes no bit of output.
  int threads = 0;
  // Instruction set; the fastest of the machine if not set.
  std::optional<CpuIsa> isa = std::nullopt;
  // Replaces the table of kernels; for tests that watch them. Outlives the
  // backend.
  const CpuOps* ops = nullptr;

  static constexpr int64_t kDefaultContexts = 8;
  static constexpr int64_t kDefaultKvBytes = int64_t{4} << 30;
};

// Converts, packs and releases `weights`. InvalidArgument
// names a bad option; ResourceExhausted if memory is short.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(
    std::unique_ptr<ModelWeights> weights, const CpuOptions& options);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_CPU_BACKEND_H_
