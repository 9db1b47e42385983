// Any bytes as config.json, generation_config.json, a shard index and a
// llama2.c checkpoint: no crash, and a config that is taken is a valid one.
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "common/infer/checkpoint_files.h"
#include "common/infer/llama2c.h"
#include "common/infer/model_config.h"

namespace {

void CheckConfig(const foretoken::ModelConfig& config) {
  FORETOKEN_CHECK(config.Validate().ok());
  for (const foretoken::TokenId id : config.eos_tokens) {
    FORETOKEN_CHECK(id >= 0 && id < config.vocab_size);
  }
  FORETOKEN_CHECK(config.bos_token >= -1 &&
                  config.bos_token < config.vocab_size);
  const foretoken::RopeScaling& scaling = config.rope_scaling;
  FORETOKEN_CHECK(std::isfinite(scaling.factor) && scaling.factor >= 1.0f);
  FORETOKEN_CHECK(scaling.high_freq_factor > scaling.low_freq_factor);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto checkpoint =
      foretoken::ConvertLlama2c(absl::MakeConstSpan(data, size), "fuzz");
  if (checkpoint.ok()) CheckConfig(checkpoint->config);

  const auto json = foretoken::ParseJson(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok()) return 0;
  auto config = foretoken::ModelConfig::FromJson(*json, "fuzz");
  if (config.ok()) {
    CheckConfig(*config);
  } else {
    // The config's own text comes back in messages, but cut.
    FORETOKEN_CHECK(config.status().message().size() < 4096);
    config = foretoken::ModelConfig();
    config->vocab_size = 100;
  }
  if (config->MergeGenerationConfig(*json, "fuzz").ok()) {
    for (const foretoken::TokenId id : config->eos_tokens) {
      FORETOKEN_CHECK(id >= 0 && id < config->vocab_size);
    }
  }
  const auto shards = foretoken::ParseShardIndex(*json, "fuzz");
  if (shards.ok()) {
    for (const auto& [name, file] : *shards) {
      FORETOKEN_CHECK(file.find('/') == std::string::npos && file != "..");
    }
  }
  return 0;
}
