// What `foretoken generate --local` checks and reads before it runs a model.
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

// The model's; null if its directory has none and none is needed.
absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadTokenizer(
    const GenerateFlags& flags);

// InvalidArgument for a tokenizer that knows more tokens than the model, or far
// fewer, or that begins or ends a text with other tokens: another model's.
absl::Status CheckVocabulary(const Tokenizer& tokenizer,
                             const ModelConfig& config);

// --seed; drawn and logged where a temperature needs one and none is given.
uint64_t SeedOf(const GenerateFlags& flags);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GENERATE_MODEL_H_
