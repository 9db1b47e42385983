// GGUF files as models: the architectures llama (Llama and Mistral), qwen2 and
// qwen3.
//
// Config and tensors of a file take the place of config.json and of the
// safetensors. llama files store the rows of the query and key matrices as
// rotary pairs (2i, 2i + 1); binding records the order, reading undoes it.
//
// Source: ggml, docs/gguf.md; llama.cpp, convert_hf_to_gguf.py, for names and
// orders. Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_GGUF_MODEL_H_
#define FORETOKEN_COMMON_INFER_GGUF_MODEL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/gguf/gguf_files.h"
#include "common/infer/model_config.h"
#include "common/infer/tensor_layout.h"

namespace foretoken {

// InvalidArgument for keys that are missing or out of range, Unimplemented for
// architectures, keys and values that are not supported; both name file, key
// and value. Keys of the architecture that are not known are refused: they may
// change the output. The end tokens are those of tokenizer.ggml.eos_token_id,
// eot_token_id and eom_token_id.
absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFiles& files);

// Points every slot's tensor at its data. Errors name file and tensor; tensors
// without a slot are refused, rope_freqs excepted.
absl::Status BindGgufTensors(const GgufFiles& files, const ModelConfig& config,
                             absl::Span<const TensorSlot> slots);

// "blk.0.attn_q.weight" for "model.layers.0.self_attn.q_proj.weight".
std::string GgufTensorName(const std::string& name);

// Whether a file of this family stores the tensor as rotary pairs.
bool IsStoredInPairs(ModelFamily family, const std::string& gguf_name);

// The tensor of RopeScaling::divisors.
inline constexpr char kGgufRopeFreqs[] = "rope_freqs.weight";

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_GGUF_MODEL_H_
