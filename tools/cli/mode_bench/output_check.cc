#include "tools/cli/mode_bench/output_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace foretoken::mode_bench {
namespace {

// A token, or the end of the output.
std::string Shown(absl::Span<const TokenId> tokens, size_t position) {
  return position < tokens.size() ? absl::StrCat("token ", tokens[position])
                                  : "the end";
}

}  // namespace

absl::Status OutputCheck::Add(const std::string& mode, size_t prompt,
                              absl::Span<const TokenId> tokens,
                              int64_t max_tokens) {
  const auto [entry, added] = references_.try_emplace(prompt);
  Reference& reference = entry->second;
  if (!added) {
    // Only as far as both requests were allowed to run: a shorter limit cuts
    // the same output earlier.
    const auto limit =
        static_cast<size_t>(std::min(max_tokens, reference.max_tokens));
    const absl::Span<const TokenId> got = tokens.subspan(0, limit);
    const absl::Span<const TokenId> want =
        absl::MakeConstSpan(reference.tokens).subspan(0, limit);
    const auto differ =
        std::mismatch(got.begin(), got.end(), want.begin(), want.end());
    // Both ends are tested: an output that stops early is as wrong as a
    // different token.
    if (differ.first != got.end() || differ.second != want.end()) {
      const size_t position = differ.first - got.begin();
      return absl::DataLossError(absl::StrCat(
          "not lossless: prompt ", prompt + 1, " at position ", position, ": ",
          Shown(got, position), " in mode ", mode, ", ", Shown(want, position),
          " in mode ", reference.mode));
    }
    compared_ += static_cast<int64_t>(got.size());
    // The longest output seen is the reference, so that later ones are compared
    // over all of their length.
    if (max_tokens <= reference.max_tokens) return absl::OkStatus();
  }
  reference = {mode, {tokens.begin(), tokens.end()}, max_tokens};
  return absl::OkStatus();
}

}  // namespace foretoken::mode_bench
