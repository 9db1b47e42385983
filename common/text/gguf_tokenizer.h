// Loads a tokenizer from the vocabulary of a GGUF file (keys tokenizer.*).
//
// tokenizer.ggml.model "gpt2" is byte-level BPE: tokens and merges, cut by the
// pre-tokenizer that tokenizer.ggml.pre names, converted to a tokenizer.json
// like the model's own. "llama" is SentencePiece: pieces with scores,
// byte pieces for the rest. Tokens of type CONTROL and USER_DEFINED in a text
// are found before anything else.
//
// Source: ggml, docs/gguf.md; llama.cpp, convert_hf_to_gguf.py and
// llama-vocab.cpp (llm_tokenizer_bpe) for pre-tokenizers and defaults.
#ifndef FORETOKEN_COMMON_TEXT_GGUF_TOKENIZER_H_
#define FORETOKEN_COMMON_TEXT_GGUF_TOKENIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json_fwd.h"
#include "common/gguf/gguf_metadata.h"
#include "common/text/tokenizer.h"

namespace foretoken {

// The tokenizer of the file at `path`; of a split model, its first file.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadGgufTokenizer(
    const std::string& path);

// NotFound without tokenizer.ggml.model; InvalidArgument and Unimplemented name
// file, key and value. Unknown keys under tokenizer.ggml are
// refused.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeGgufTokenizer(
    const GgufMetadata& metadata);

// The names of tokenizer.ggml.pre that are supported.
std::vector<std::string> GgufPreTokenizers();

// The name under which text is normalised and cut as a byte-level
// tokenizer.json says; empty if there is none.
std::string GgufPreTokenizerOf(const Json& tokenizer_json);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_GGUF_TOKENIZER_H_
