#include "common/text/detokenizer.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"
#include "common/text/vocabulary.h"

namespace foretoken {

using LeadingSpace = DecodeRules::LeadingSpace;
using Malformed = DecodeRules::Malformed;

Detokenizer::Detokenizer(const Tokenizer& tokenizer, Start start)
    : tokenizer_(tokenizer),
      rules_(tokenizer.decode_rules()),
      strips_(start == Start::kOfText),
      at_start_(strips_),
      any_text_(!strips_) {}

absl::Status Detokenizer::Push(TokenId id, std::string& text) {
  const Vocabulary& vocabulary = tokenizer_.vocabulary();
  if (!vocabulary.Contains(id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("token id ", id, ": want 0..", vocabulary.size() - 1));
  }
  // Byte tokens collect in pending_ until they form characters (or, with
  // ByteFallback, until the run ends); any other token completes them first.
  const TokenKind kind = vocabulary.kind(id);
  if (kind == TokenKind::kByte) {
    pending_.append(vocabulary.bytes(id).data(), vocabulary.bytes(id).size());
    at_start_ = false;
    if (rules_.malformed != Malformed::kByteTokenRun) {
      EmitCharacters(/*at_end=*/false, text);
    }
    return absl::OkStatus();
  }
  // Any token ends a run of byte tokens; in SentencePiece even a token that
  // writes nothing.
  if (rules_.malformed == Malformed::kByte) EmitCharacters(true, text);
  const absl::string_view bytes = vocabulary.bytes(id);
  if (bytes.empty()) return absl::OkStatus();
  if (rules_.malformed == Malformed::kByteTokenRun) EmitByteRun(text);
  // The unknown token's surface and user-defined pieces with a space of their
  // own are not subject to the leading-space rules.
  const bool keep =
      kind == TokenKind::kUnknown || vocabulary.keeps_leading_space(id);
  const absl::string_view kept = keep ? bytes : StripLeading(bytes);
  if (keep) at_start_ = false;
  pending_.append(kept.data(), kept.size());
  EmitCharacters(/*at_end=*/false, text);
  return absl::OkStatus();
}

absl::Status Detokenizer::Push(absl::Span<const TokenId> ids,
                               std::string& text) {
  for (const TokenId id : ids) FORETOKEN_RETURN_IF_ERROR(Push(id, text));
  return absl::OkStatus();
}

void Detokenizer::Flush(std::string& text) {
  if (rules_.malformed == Malformed::kByteTokenRun) EmitByteRun(text);
  EmitCharacters(/*at_end=*/true, text);
  pending_.clear();
  // Ready for the next text.
  at_start_ = strips_;
  any_text_ = !strips_;
}

absl::string_view Detokenizer::StripLeading(absl::string_view bytes) {
  if (!at_start_) return bytes;
  switch (rules_.leading_space) {
    case LeadingSpace::kStripFromFirstToken:
      at_start_ = false;
      if (absl::StartsWith(bytes, " ")) bytes.remove_prefix(1);
      return bytes;
    case LeadingSpace::kStripUntilText:
      if (absl::StartsWith(bytes, " ")) bytes.remove_prefix(1);
      at_start_ = bytes.empty();
      return bytes;
    case LeadingSpace::kStripAllOfFirstToken:
      at_start_ = false;
      without_spaces_ = absl::StrReplaceAll(bytes, {{" ", ""}});
      return without_spaces_;
    case LeadingSpace::kKeep:
    case LeadingSpace::kStripFromText:  // applies to the text: see Emit
      return bytes;
  }
  return bytes;
}

// Emits whole characters from pending_; at the end also what is left of a
// broken one.
void Detokenizer::EmitCharacters(bool at_end, std::string& text) {
  absl::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = NextUtf8(rest);
    if (step.kind == Utf8Step::kIncomplete && !at_end) break;
    if (step.kind == Utf8Step::kCharacter) {
      Emit(rest.substr(0, step.length), text);
      rest.remove_prefix(step.length);
    } else {
      Emit(kReplacementCharacter, text);
      rest.remove_prefix(
          rules_.malformed == Malformed::kMaximalSubpart ? step.length : 1);
    }
  }
  pending_.erase(0, pending_.size() - rest.size());
}

// Emits a run of byte tokens that has ended: all of it as text, or one U+FFFD
// per byte, as decoder ByteFallback does.
void Detokenizer::EmitByteRun(std::string& text) {
  if (!IsValidUtf8(pending_)) {
    for (size_t i = 0; i < pending_.size(); ++i) {
      Emit(kReplacementCharacter, text);
    }
  } else if (!pending_.empty()) {
    Emit(pending_, text);
  }
  pending_.clear();
}

void Detokenizer::Emit(absl::string_view bytes, std::string& text) {
  if (!any_text_ && rules_.leading_space == LeadingSpace::kStripFromText &&
      absl::StartsWith(bytes, " ")) {
    bytes.remove_prefix(1);
  }
  any_text_ = true;
  text.append(bytes.data(), bytes.size());
}

}  // namespace foretoken
