// Tokenizer, vocabulary check and seed of `foretoken generate --local`.
#ifndef FORETOKEN_TOOLS_CLI_GENERATE_MODEL_H_
#define FORETOKEN_TOOLS_CLI_GENERATE_MODEL_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/infer/model_config.h"
#include "common/text/tokenizer.h"
#include "tools/cli/generate_flags.h"

namespace foretoken::cli {

// Loads the model's tokenizer; null if it has none and none is needed.
absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadTokenizer(
    const GenerateFlags& flags);

// InvalidArgument for a tokenizer of another model: one with more tokens than
// the model or far fewer, or with a different BOS or EOS token.
absl::Status CheckVocabulary(const Tokenizer& tokenizer,
                             const ModelConfig& config);

// --seed; if not given, drawn and logged at temperatures above 0, else 0.
uint64_t SeedOf(const RequestFlags& flags);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GENERATE_MODEL_H_
