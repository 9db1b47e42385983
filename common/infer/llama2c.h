// Checkpoints of llama2.c (legacy format) as Hugging Face directories.
//
// The file is seven little-endian int32 (dim, hidden_dim, n_layers, n_heads,
// n_kv_heads, vocab_size, max_seq_len; a negative vocab_size says that the
// output matrix is stored apart), then fp32 arrays: token embedding; for all
// layers in turn attention norm, wq, wk, wv, wo, ffn norm, w1 (gate), w2
// (down), w3 (up); final norm; two rotary tables; the output matrix if apart.
//
// llama2.c rotates neighbouring pairs (2i, 2i+1), Hugging Face the pairs
// (i, i + head_dim/2): the rows of wq and wk are reordered to match, which
// leaves every score as it was. RMSNorm epsilon and rotary base, which the
// file does not say, are the program's own 1e-5 and 10000.
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

// The model and the bytes of its three files.
struct Llama2cFiles {
  ModelConfig config;
  std::string safetensors;        // model.safetensors, fp32
  std::string generation_config;  // generation_config.json
  std::string config_json;        // config.json
};

// A model that has ended emits the end token 2 or, having been trained on
// stories in a row, the next story's 1: both are kept as end tokens.
// InvalidArgument names `file` and the header field or the size that is wrong.
absl::StatusOr<Llama2cFiles> ConvertLlama2c(absl::Span<const uint8_t> bytes,
                                            const std::string& file);

// The same for the file at `path`.
absl::StatusOr<Llama2cFiles> ConvertLlama2cFile(const std::string& path);

// Writes the files into `directory`, which must be there. The config comes
// last, so that a directory with one is complete.
absl::Status WriteLlama2cFiles(const Llama2cFiles& files,
                               const std::string& directory);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_LLAMA2C_H_
