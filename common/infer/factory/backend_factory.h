// Options, flags and construction of a backend with its model.
#ifndef FORETOKEN_COMMON_INFER_FACTORY_BACKEND_FACTORY_H_
#define FORETOKEN_COMMON_INFER_FACTORY_BACKEND_FACTORY_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/config/flags.h"
#include "common/infer/backend.h"
#include "common/infer/model_config.h"
#include "common/infer/model_weights.h"
#include "common/infer/planned_backend.h"

namespace foretoken {

struct BackendOptions : PlannedOptions {
  std::string model;         // a Hugging Face directory or GGUF file, or
  std::string random_model;  // the shape of random weights, for measurements
  // Type of the random weights as GGUF spells it, in any case ("q4_k"); empty:
  // that of the precision.
  std::string random_weights;
  std::string backend = "auto";
  int32_t device = 0;              // index of the GPU
  std::string precision = "bf16";  // on a GPU fp16 weights stay fp16
  // A name of CpuIsaChoices(). In products of bf16, avx512bf16 has numerics of
  // its own; the others are equal bit for bit.
  std::string isa = "auto";
  std::string kv_type = "auto";  // of KvTypeChoices(); auto: the precision
  int32_t threads = 0;           // 0: all processors
  int64_t random_seed = 1;
  // For draft models, whose numerics are free. They have no flags here; see
  // draft_loading.h. The CPU engine's: a GPU computes the whole head, in its
  // own type.
  std::string conversion = "keep";  // of WeightConversionChoices()
  // The LM head's rows that are computed, by ChooseHeadIds; 0: all.
  int32_t head_size = 0;
  std::vector<TokenId> head_first = {};
  // Called with a model's weights (not random ones) before they are read, and
  // with how many of their bytes it will report (ModelWeights::Watch): on a GPU
  // those of the digest alone. May be null.
  std::function<void(ModelWeights& weights, int64_t reported)> on_weights;

  // --model --random-model --backend --device --precision --isa --kv-type
  // --threads --kv-cache-bytes --max-rows-per-pass --max-admitted-sessions
  // --prefix-reuse --random-seed
  void AddFlags(Flags& flags);
};

// Parses "d_model=2048,layers=12,heads=32,kv_heads=4,d_ff=5632,vocab=32000",
// optionally with max_positions (4096) and head_dim; or a name of
// named_shapes.h, optionally followed by fields that override it.
// InvalidArgument names the key.
absl::StatusOr<ModelConfig> ParseRandomModel(absl::string_view text);

// Loads or generates the weights and creates the backend; errors name file or
// field. "auto" uses the GPU if the GPU module loads, finds a GPU and has
// kernels for the shape, and otherwise falls back to the CPU, logging the
// reason; options that only the CPU engine has (precision fp32, isa, kv_type,
// conversion q8_0 or q4_0) select the CPU at once. "cuda" returns an error
// instead: Unavailable, or Unimplemented for the shape. Bad options, an isa
// that this processor lacks among them, are InvalidArgument for both.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(
    const BackendOptions& options);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_FACTORY_BACKEND_FACTORY_H_
