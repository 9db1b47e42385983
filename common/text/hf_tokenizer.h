// The tokenizer of a Hugging Face tokenizer.json: added tokens, normalizer,
// pre-tokenizer, BPE, post-processor, decoder.
//
// Its truncation and padding settings are about training batches and are not
// looked at.
#ifndef FORETOKEN_COMMON_TEXT_HF_TOKENIZER_H_
#define FORETOKEN_COMMON_TEXT_HF_TOKENIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/tokenizer.h"
#include "common/text/tokenizer_config.h"

namespace foretoken {

// `bytes`: the file. InvalidArgument names field and value.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeHfTokenizer(
    absl::string_view bytes, const TokenizerConfig& config);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_HF_TOKENIZER_H_
