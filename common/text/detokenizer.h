// From token ids to text, a few tokens at a time.
//
// Joins what tokens write, keeps back bytes that do not yet make a whole
// character, drops the leading space that the tokenizer put in, and replaces
// bytes that can never become a character as the tokenizer's own library does.
// Tokenizer::Decode is this class fed once, so that for every way to cut a
// sequence of ids all pieces joined equal Decode of the whole.
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

// How a format turns token bytes into text.
struct DecodeRules {
  enum class Malformed : uint8_t {
    // One U+FFFD for each byte that is in no character (SentencePiece).
    kByte,
    // One for each maximal subpart (Unicode 15.0, section 3.9): what byte-level
    // tokenizer.json files do.
    kMaximalSubpart,
    // A run of byte tokens is text if it is UTF-8 as a whole, else one for each
    // byte of the run: tokenizer.json with ByteFallback. Such a run is kept
    // back to its end.
    kByteTokenRun,
  };
  enum class LeadingSpace : uint8_t {
    kKeep,
    // One space, if the first token that is text begins with it
    // (SentencePiece).
    kStripFromFirstToken,
    // As above, and from every token until there is text (SentencePiece with
    // remove_extra_whitespaces).
    kStripUntilText,
    // One space, if the whole text begins with it (decoder Strip).
    kStripFromText,
    // Every space of the first token (decoder Metaspace).
    kStripAllOfFirstToken,
  };
  Malformed malformed = Malformed::kMaximalSubpart;
  LeadingSpace leading_space = LeadingSpace::kKeep;
};

class Detokenizer {
 public:
  // Where the ids stand: at the start of a text, as in Tokenizer::Decode, or
  // behind a prompt, where no leading space is the tokenizer's own.
  enum class Start : uint8_t { kOfText, kBehindPrompt };

  // `tokenizer` must outlive this object.
  explicit Detokenizer(const Tokenizer& tokenizer,
                       Start start = Start::kOfText);

  // Appends to `text` what is certain after one more token: whole characters
  // only. InvalidArgument for an id outside the vocabulary; the state is then
  // unchanged.
  absl::Status Push(TokenId id, std::string& text);
  absl::Status Push(absl::Span<const TokenId> ids, std::string& text);

  // Appends what was kept back, broken characters replaced, and starts anew.
  void Flush(std::string& text);

  // Bytes kept back: the start of a character, or a run of byte tokens.
  absl::string_view pending() const { return pending_; }

 private:
  absl::string_view StripLeading(absl::string_view bytes);
  void EmitCharacters(bool at_end, std::string& text);
  void EmitByteRun(std::string& text);
  void Emit(absl::string_view bytes, std::string& text);

  const Tokenizer& tokenizer_;
  const DecodeRules rules_;
  const bool strips_;  // whether a leading space is dropped at all
  std::string pending_;
  std::string without_spaces_;  // a first token whose spaces were taken out
  bool at_start_;               // a token's leading space may yet be dropped
  bool any_text_;               // characters were emitted, or one space dropped
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_DETOKENIZER_H_
