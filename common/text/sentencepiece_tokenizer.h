// SentencePiece BPE encoder over a tokenizer.model.
//
// Text is normalised, cut before every run of spaces, and merged by score. No
// piece of a typical vocabulary crosses such a border, so the cut does not
// change the result and keeps merging local; otherwise it is left out.
// Characters without a piece become byte pieces, or one unknown piece per run.
//
// A GGUF file's vocabulary `llama` (gguf_tokenizer.h) is such a model, too.
//
// Source: Kudo and Richardson, arXiv:1808.06226, "Subword segmentation".
#ifndef FORETOKEN_COMMON_TEXT_SENTENCEPIECE_TOKENIZER_H_
#define FORETOKEN_COMMON_TEXT_SENTENCEPIECE_TOKENIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/sentencepiece_model.h"
#include "common/text/tokenizer.h"
#include "common/text/tokenizer_config.h"

namespace foretoken {

// `model` has passed CheckSentencePieceModel. InvalidArgument for a malformed
// rewriting table.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    const SentencePieceModel& model, const TokenizerConfig& config);

// `bytes`: the contents of the file. InvalidArgument names field and value.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    absl::string_view bytes, const TokenizerConfig& config);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_SENTENCEPIECE_TOKENIZER_H_
