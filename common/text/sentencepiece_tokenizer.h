// The SentencePiece BPE encoder over a tokenizer.model.
//
// Text is normalised, cut before every run of spaces (no piece of such a
// vocabulary crosses that border, so the cut changes nothing and keeps the
// merging local), and merged by score. Characters without a piece become byte
// pieces, or one unknown piece for a run of them.
//
// Source: Kudo and Richardson, arXiv:1808.06226, "Subword segmentation".
#ifndef FORETOKEN_COMMON_TEXT_SENTENCEPIECE_TOKENIZER_H_
#define FORETOKEN_COMMON_TEXT_SENTENCEPIECE_TOKENIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/tokenizer.h"
#include "common/text/tokenizer_config.h"

namespace foretoken {

// `bytes`: the file. InvalidArgument names field and value.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    absl::string_view bytes, const TokenizerConfig& config);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_SENTENCEPIECE_TOKENIZER_H_
