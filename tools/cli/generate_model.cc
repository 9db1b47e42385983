#include "tools/cli/generate_model.h"

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"

namespace foretoken::cli {
namespace {

// Largest padded vocab_size for this many tokens: a multiple of 128 below 1024
// tokens, otherwise a multiple of 256 or 1/32 more tokens.
int64_t LargestPadded(int64_t tokens) {
  const int64_t multiple = tokens < 1024 ? 128 : 256;
  // Padding to a multiple is common since matrices of such sizes run faster;
  // some models add more by share.
  const int64_t rounded = (tokens + multiple - 1) / multiple * multiple;
  return tokens < 1024 ? rounded : std::max(rounded, tokens + tokens / 32);
}

}  // namespace

absl::Status CheckVocabulary(const Tokenizer& tokenizer,
                             const ModelConfig& config) {
  const int32_t tokens = tokenizer.vocab_size();
  if (tokens > config.vocab_size || config.vocab_size > LargestPadded(tokens)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the tokenizer has ", tokens, " tokens and the model's vocab_size is ",
        config.vocab_size, ": they do not belong together"));
  }
  // -1 means that the file does not say; only two statements can contradict
  // each other.
  if (tokenizer.bos_token() >= 0 && config.bos_token >= 0 &&
      tokenizer.bos_token() != config.bos_token) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer's BOS token is ", tokenizer.bos_token(),
                     " and the model's bos_token_id is ", config.bos_token,
                     ": they do not belong together"));
  }
  if (tokenizer.eos_token() >= 0 && !config.eos_tokens.empty() &&
      !std::binary_search(config.eos_tokens.begin(), config.eos_tokens.end(),
                          tokenizer.eos_token())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer's EOS token is ", tokenizer.eos_token(),
                     " and the model's eos_token_id is ",
                     absl::StrJoin(config.eos_tokens, ", "),
                     ": they do not belong together"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadTokenizer(
    const GenerateFlags& flags) {
  absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer =
      Tokenizer::LoadShared(flags.backend.model);
  // Token ids in and out need no tokenizer. Stop strings do: they are found in
  // the text.
  if (absl::IsNotFound(tokenizer.status()) && flags.prompt_ids.has_value() &&
      flags.stop.empty()) {
    FORETOKEN_LOG(kWarning, "no tokenizer, output has no text: ",
                  std::string(tokenizer.status().message()));
    return std::shared_ptr<const Tokenizer>();
  }
  return tokenizer;
}

uint64_t SeedOf(const RequestFlags& flags) {
  if (flags.seed.has_value()) return *flags.seed;
  // The seed has no effect on a greedy output; 0 says so in the report.
  if (!(flags.sampling.temperature > 0.0f)) return 0;
  std::random_device device;
  // 53 bits, which every JSON reader represents exactly.
  const uint64_t seed =
      ((uint64_t{device()} << 32) | device()) & ((uint64_t{1} << 53) - 1);
  FORETOKEN_LOG(kInfo, "seed ", seed);
  return seed;
}

}  // namespace foretoken::cli
