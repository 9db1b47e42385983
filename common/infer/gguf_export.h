// Models as GGUF files (version 3), converted tensor by tensor.
//
// The files follow llama.cpp: names, orders, the keys of the architecture, and
// the mixture of types that each kind of file has.
//
// Source: llama.cpp, convert_hf_to_gguf.py and llama_tensor_get_type. Pure
// functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_GGUF_EXPORT_H_
#define FORETOKEN_COMMON_INFER_GGUF_EXPORT_H_

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/thread_pool.h"
#include "common/gguf/gguf_writer.h"
#include "common/infer/model_weights.h"
#include "common/infer/weight_types.h"

namespace foretoken {

// The values are llama.cpp's file types (general.file_type).
enum class GgufFileKind {
  kFloat32 = 0,
  kFloat16 = 1,
  kQ4_0 = 2,
  kQ8_0 = 7,
  kQ4_K_M = 15,
  kBFloat16 = 32,
};

// "f32", "f16", "bf16", "q8_0", "q4_0" and "q4_k_m".
std::optional<GgufFileKind> ParseGgufFileKind(absl::string_view name);

// One tensor of the file. `type` differs from `wanted` where the rows are no
// multiple of the wanted type's block: Q4_K becomes Q5_0, Q6_K Q8_0, and types
// of 32 elements F16.
struct GgufExportedTensor {
  std::string name;
  WeightType wanted = WeightType::kFloat32;
  WeightType type = WeightType::kFloat32;
};

// Writes `weights` to `path`, which appears when it is complete. `writer` comes
// with the keys that are to precede the model's own (the tokenizer's); BOS and
// end tokens are taken from the config where it has none. `report` is called
// for every tensor. InvalidArgument for a weight that is not finite or that its
// type cannot hold, Unimplemented for more end tokens than GGUF has keys.
absl::Status ExportGguf(
    const ModelWeights& weights, GgufFileKind kind, const std::string& path,
    ThreadPool& pool, GgufWriter writer,
    absl::FunctionRef<void(const GgufExportedTensor&)> report);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_GGUF_EXPORT_H_
