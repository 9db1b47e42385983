#include "common/text/sentencepiece_normalizer.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/text/utf8.h"

namespace foretoken {
namespace {

// Maximum length of a character's replacement; nmt_nfkc's longest has 33 bytes.
// Without a limit, a hostile model file could turn a short text into gigabytes.
constexpr size_t kMaxRewriteBytes = 64;

// Bit fields of a unit of a darts-clone double array, the trie in which
// SentencePiece stores its rewrite rules.
bool HasLeaf(uint32_t unit) { return (unit >> 8) & 1; }
uint32_t Value(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t Offset(uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

}  // namespace

absl::StatusOr<SentencePieceNormalizer> SentencePieceNormalizer::Create(
    const SentencePieceModel& model) {
  SentencePieceNormalizer result;
  result.add_dummy_prefix_ = model.add_dummy_prefix;
  result.remove_extra_whitespaces_ = model.remove_extra_whitespaces;
  result.space_ = model.escape_whitespaces ? kSpaceSymbol : " ";
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    if (piece.type == SentencePieceModel::PieceType::kUserDefined) {
      result.user_defined_.Add(piece.text, static_cast<int32_t>(id));
    }
  }
  FORETOKEN_RETURN_IF_ERROR(
      Annotate(result.LoadTable(model.precompiled_charsmap),
               "normalizer_spec.precompiled_charsmap"));
  return result;
}

absl::Status SentencePieceNormalizer::LoadTable(absl::string_view table) {
  if (table.empty()) return absl::OkStatus();
  // Layout: uint32 size of the trie in bytes, the trie, the rewrites.
  uint32_t trie_bytes = 0;
  if (table.size() < sizeof trie_bytes) {
    return absl::InvalidArgumentError("truncated");
  }
  std::memcpy(&trie_bytes, table.data(), sizeof trie_bytes);
  table.remove_prefix(sizeof trie_bytes);
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 ||
      trie_bytes > table.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("trie of ", trie_bytes, " bytes in ", table.size()));
  }
  // Copied, because the units in the file may be unaligned.
  units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), table.data(), trie_bytes);
  rewrites_ = std::string(table.substr(trie_bytes));
  if (rewrites_.empty() || rewrites_.back() != '\0') {
    return absl::InvalidArgumentError("the rewrites are not zero-terminated");
  }
  size_t begin = 0;
  // Every rewrite is checked here, since FindInTable may reach any offset, also
  // into the middle of one.
  while (begin < rewrites_.size()) {
    const size_t end = rewrites_.find('\0', begin);
    if (end - begin > kMaxRewriteBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a rewrite of ", end - begin, " bytes, want at most ",
                       kMaxRewriteBytes));
    }
    begin = end + 1;
  }
  return absl::OkStatus();
}

bool SentencePieceNormalizer::FindInTable(absl::string_view text,
                                          Prefix& found) const {
  if (units_.empty()) return false;
  // Every leaf on the way is a match; the last one, the longest, stays. Indices
  // are checked because the table comes from a file.
  bool any = false;
  size_t node = Offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (node >= units_.size() || Label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (node >= units_.size()) break;
    if (!HasLeaf(unit)) continue;
    const uint32_t rewrite = Value(units_[node]);
    if (rewrite >= rewrites_.size()) break;
    found.normalized = absl::string_view(rewrites_.data() + rewrite);
    found.consumed = i + 1;
    any = true;
  }
  return any;
}

SentencePieceNormalizer::Prefix SentencePieceNormalizer::NormalizePrefix(
    absl::string_view text) const {
  // Same precedence as in the original: user-defined pieces are never
  // rewritten.
  const PrefixTrie::Match match = user_defined_.Longest(text);
  if (match.length > 0) return {text.substr(0, match.length), match.length};
  Prefix prefix;
  if (FindInTable(text, prefix)) return prefix;
  const Utf8Step step = NextUtf8(text);
  // One U+FFFD per malformed byte, as in the original.
  if (step.kind != Utf8Step::kCharacter) return {kReplacementCharacter, 1};
  return {text.substr(0, step.length), step.length};
}

std::string SentencePieceNormalizer::Normalize(absl::string_view text) const {
  std::string out;
  // Leading spaces go before the dummy prefix is added, as in the original. A
  // rewrite may turn other white space into a space, so compare after it.
  if (remove_extra_whitespaces_) {
    while (!text.empty()) {
      const Prefix prefix = NormalizePrefix(text);
      if (prefix.normalized != " ") break;
      text.remove_prefix(prefix.consumed);
    }
  }
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2 + space_.size());
  if (add_dummy_prefix_) out.append(space_.data(), space_.size());
  // Spaces at the beginning are dropped like those after a space.
  bool after_space = remove_extra_whitespaces_;
  while (!text.empty()) {
    const Prefix prefix = NormalizePrefix(text);
    text.remove_prefix(prefix.consumed);
    absl::string_view piece = prefix.normalized;
    // A run of spaces keeps its first one.
    while (after_space && absl::ConsumePrefix(&piece, " ")) {
    }
    if (piece.empty()) continue;
    // Spaces inside a rewrite are escaped too.
    for (const char c : piece) {
      if (c == ' ') {
        out.append(space_.data(), space_.size());
      } else {
        out.push_back(c);
      }
    }
    after_space = remove_extra_whitespaces_ && absl::EndsWith(piece, " ");
  }
  if (remove_extra_whitespaces_) {
    absl::string_view kept = out;
    while (absl::ConsumeSuffix(&kept, space_)) {
    }
    out.resize(kept.size());
  }
  return out;
}

}  // namespace foretoken
