// Converts llama2.c checkpoints (legacy format) to Hugging Face directories.
//
// The file has seven little-endian int32 (dim, hidden_dim, n_layers, n_heads,
// n_kv_heads, vocab_size, max_seq_len; a negative vocab_size means that the
// output matrix is stored separately), then fp32 arrays: token embedding; for
// all layers in turn attention norm, wq, wk, wv, wo, ffn norm, w1 (gate), w2
// (down), w3 (up); final norm; two rotary tables; the output matrix if
// separate.
//
// llama2.c rotates adjacent pairs (2i, 2i+1), Hugging Face pairs (i, i +
// head_dim/2). The rows of wq and wk are reordered to match, which leaves every
// attention score unchanged. RMSNorm epsilon and rotary base are not in the
// file; they are the program's constants, 1e-5 and 10000.
//
// Format: github.com/karpathy/llama2.c, "export.py", legacy_export.
#ifndef FORETOKEN_COMMON_INFER_LLAMA2C_H_
#define FORETOKEN_COMMON_INFER_LLAMA2C_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/infer/model_config.h"

namespace foretoken {

// The model's config and the bytes of its three files.
struct Llama2cFiles {
  ModelConfig config;
  std::string safetensors;        // model.safetensors, fp32
  std::string generation_config;  // generation_config.json
  std::string config_json;        // config.json
};

// At the end of a text the model emits the end token 2 or, because it was
// trained on concatenated stories, the next story's BOS 1: both become end
// tokens. InvalidArgument names `file` and the bad header field or size.
absl::StatusOr<Llama2cFiles> ConvertLlama2c(absl::Span<const uint8_t> bytes,
                                            const std::string& file);

// As above, for the file at `path`.
absl::StatusOr<Llama2cFiles> ConvertLlama2cFile(const std::string& path);

// Writes the files into `directory`, which must exist. config.json is written
// last, so a directory that has one is complete.
absl::Status WriteLlama2cFiles(const Llama2cFiles& files,
                               const std::string& directory);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_LLAMA2C_H_
