// Incremental detokenizer: token ids to text, a few tokens at a time.
//
// Joins the tokens' bytes, holds back incomplete characters, drops the leading
// space that the tokenizer inserted, and replaces malformed bytes as the
// tokenizer's own library does. Tokenizer::Decode is this class fed once, so
// however a sequence of ids is split, the joined pieces equal Decode of the
// whole.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_DETOKENIZER_H_
#define FORETOKEN_COMMON_TEXT_DETOKENIZER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken {

class Tokenizer;

// How a tokenizer format turns token bytes into text.
struct DecodeRules {
  enum class Malformed : uint8_t {
    // One U+FFFD per byte that is not part of a character (SentencePiece).
    kByte,
    // One U+FFFD per maximal subpart (Unicode 15.0, section 3.9); byte-level
    // tokenizer.json.
    kMaximalSubpart,
    // A run of byte tokens is text if all of it is valid UTF-8, else one U+FFFD
    // per byte; tokenizer.json with ByteFallback. A run is held back until it
    // ends.
    kByteTokenRun,
  };
  enum class LeadingSpace : uint8_t {
    kKeep,
    // Strips one space from the first token that is text (SentencePiece).
    kStripFromFirstToken,
    // As above, and from every token until there is text (SentencePiece with
    // remove_extra_whitespaces).
    kStripUntilText,
    // Strips one space from the start of the whole text (decoder Strip).
    kStripFromText,
    // Strips every space of the first token (decoder Metaspace).
    kStripAllOfFirstToken,
  };
  Malformed malformed = Malformed::kMaximalSubpart;
  LeadingSpace leading_space = LeadingSpace::kKeep;
};

class Detokenizer {
 public:
  // Position of the ids: at the start of a text, as in Tokenizer::Decode, or
  // after a prompt, where leading spaces are not the tokenizer's.
  enum class Start : uint8_t { kOfText, kBehindPrompt };

  // `tokenizer` must outlive this object.
  explicit Detokenizer(const Tokenizer& tokenizer,
                       Start start = Start::kOfText);

  // Appends to `text` what one more token completes: whole characters only.
  // InvalidArgument for an id outside the vocabulary; the state is then
  // unchanged.
  absl::Status Push(TokenId id, std::string& text);
  absl::Status Push(absl::Span<const TokenId> ids, std::string& text);

  // Appends what was held back, with broken characters replaced, and resets.
  void Flush(std::string& text);

  // Bytes held back: an incomplete character, or a run of byte tokens.
  absl::string_view pending() const { return pending_; }

 private:
  absl::string_view StripLeading(absl::string_view bytes);
  void EmitCharacters(bool at_end, std::string& text);
  void EmitByteRun(std::string& text);
  void Emit(absl::string_view bytes, std::string& text);

  const Tokenizer& tokenizer_;
  const DecodeRules rules_;
  const bool strips_;  // whether leading spaces may be dropped at all
  std::string pending_;
  std::string without_spaces_;  // first token after its spaces were removed
  bool at_start_;  // the leading space of a token may still be dropped
  bool any_text_;  // characters were emitted, or one space dropped
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_DETOKENIZER_H_
