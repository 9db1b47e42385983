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

#include "absl/status/statusor.h"
#include "common/infer/backend.h"
#include "common/infer/cpu/ops.h"
#include "common/infer/model_weights.h"

namespace foretoken {

struct CpuOptions {
  Precision precision = Precision::kBFloat16;
  // 0: as many as the machine has processors. Changes no bit of output.
  int threads = 0;
  // Memory for committed KV, in bytes of pages; touched only as it is used.
  // At least one page; 0: room for kDefaultContexts sessions of full length,
  // at most kDefaultKvBytes but no less than kv_cache_tokens.
  int64_t kv_cache_bytes = 0;
  // Tokens of one session that the default size must hold; 0: any.
  int64_t kv_cache_tokens = 0;
  int32_t max_rows = 512;  // of one pass, 1..kMaxRows
  int32_t max_sessions = 64;
  bool prefix_reuse = true;
  // Instead of the fastest that the machine has; for tests.
  std::optional<CpuIsa> isa;

  static constexpr int32_t kMaxRows = 16384;
  static constexpr int64_t kDefaultContexts = 8;
  static constexpr int64_t kDefaultKvBytes = int64_t{4} << 30;
};

// Converts and packs `weights`, which are gone afterwards. InvalidArgument
// names a bad option; ResourceExhausted if memory is short.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(
    std::unique_ptr<ModelWeights> weights, const CpuOptions& options);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_CPU_BACKEND_H_
