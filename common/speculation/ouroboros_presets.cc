#include "common/speculation/ouroboros_presets.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace foretoken {
namespace {

constexpr absl::string_view kKey = "preset";

// The paper's table of hyperparameters, by task and model pair (Ouroboros,
// arXiv:2402.13720).
// Name, gamma, window, beta, suffixes.
constexpr OuroborosPreset kPresets[] = {
    {"paper", 12, 20, 8, 3},
    {"humaneval_yi", 12, 20, 7, 3},
    {"humaneval_deepseek", 11, 20, 7, 3},
    {"humaneval_codellama", 10, 20, 6, 3},
    {"mbpp_yi", 12, 18, 5, 3},
    {"mbpp_deepseek", 7, 15, 5, 3},
    {"mbpp_codellama", 8, 16, 6, 3},
    {"gsm8k_yi", 4, 15, 6, 3},
    {"gsm8k_llama2", 6, 17, 6, 3},
    {"cnndm_yi", 10, 15, 5, 3},
    {"cnndm_llama2", 4, 13, 5, 3},
    {"wmt16_yi", 5, 16, 5, 3},
    {"wmt16_llama2", 4, 13, 5, 3},
    {"specbench", 6, 15, 5, 3},
};

const OuroborosPreset* Find(absl::string_view name) {
  for (const OuroborosPreset& preset : kPresets) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

}  // namespace

absl::Span<const OuroborosPreset> OuroborosPresets() { return kPresets; }

absl::StatusOr<ModeSpec> ExpandOuroborosPreset(ModeSpec spec) {
  std::vector<std::pair<std::string, std::string>> parameters =
      spec.parameters();
  const auto find = [&parameters](absl::string_view key) {
    return std::find_if(
        parameters.begin(), parameters.end(),
        [key](const auto& parameter) { return parameter.first == key; });
  };
  const auto named = find(kKey);
  if (named == parameters.end()) return spec;
  const OuroborosPreset* const preset = Find(named->second);
  if (preset == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mode '", spec.name(), "': unknown preset '", named->second,
        "', want one of ",
        absl::StrJoin(kPresets, " ",
                      [](std::string* out, const OuroborosPreset& known) {
                        absl::StrAppend(out, known.name);
                      })));
  }
  // Removed first, so that Create does not take it for a parameter of the mode.
  parameters.erase(named);
  const std::pair<absl::string_view, int> values[] = {
      {"gamma", preset->gamma},
      {"window", preset->window},
      {"beta", preset->beta},
      {"suffixes", preset->suffixes}};
  for (const auto& [key, value] : values) {
    // Parameters that are given beside the preset win over it.
    if (find(key) != parameters.end()) continue;
    parameters.emplace_back(std::string(key), absl::StrCat(value));
  }
  return ModeSpec::Create(spec.name(), std::move(parameters));
}

}  // namespace foretoken
