// Exports the tokenizer of a Hugging Face directory as keys of a GGUF file.
//
// Pure function over files; thread-safe.
#ifndef FORETOKEN_COMMON_TEXT_GGUF_TOKENIZER_EXPORT_H_
#define FORETOKEN_COMMON_TEXT_GGUF_TOKENIZER_EXPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/gguf/gguf_writer.h"

namespace foretoken {

// Adds the keys that MakeGgufTokenizer reads, for tokenizer.json (byte-level
// BPE with a known pre-tokenizer) or else tokenizer.model, with unused tokens
// up to `vocab_size`. The result is read back: it has the same fingerprint.
// NotFound if the directory has no tokenizer; Unimplemented for one that a GGUF
// file cannot represent.
absl::Status AddGgufTokenizerKeys(const std::string& directory,
                                  int32_t vocab_size, GgufWriter& writer);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_GGUF_TOKENIZER_EXPORT_H_
