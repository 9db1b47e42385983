// The tokenizer of a model, where it has one.
#ifndef FORETOKEN_COMMON_TEXT_MODEL_TOKENIZER_H_
#define FORETOKEN_COMMON_TEXT_MODEL_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/text/tokenizer.h"

namespace foretoken {

// As Tokenizer::LoadShared, but null for a model without a tokenizer, which
// serves token ids alone, and for an empty path (a model of random weights).
absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadModelTokenizer(
    const std::string& model);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_MODEL_TOKENIZER_H_
