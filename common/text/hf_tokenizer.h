// Hugging Face tokenizer.json: added tokens, normalizer, pre-tokenizer, BPE,
// post-processor, decoder.
//
// The file's truncation and padding settings concern training batches and are
// ignored.
#ifndef FORETOKEN_COMMON_TEXT_HF_TOKENIZER_H_
#define FORETOKEN_COMMON_TEXT_HF_TOKENIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"
#include "common/text/tokenizer.h"
#include "common/text/tokenizer_config.h"

namespace foretoken {

// `file`: the contents of the file, parsed. InvalidArgument names field and
// value.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeHfTokenizerFromJson(
    const Json& file, const TokenizerConfig& config);

// The same for the bytes of the file.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeHfTokenizer(
    absl::string_view bytes, const TokenizerConfig& config);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_HF_TOKENIZER_H_
