#include "tools/cli/chat/drafter_painter.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace foretoken::cli {
namespace {

constexpr char kPlain[] = "\x1b[39m";

// Colours of the 256-colour palette that are told apart on light and on dark
// ground, by DrafterId; the last ones are for drafters to come.
constexpr std::array<int, 16> kColours = {
    33,   // draft_model: blue
    172,  // lookahead: orange
    135,  // ouroboros: purple
    35,   // ngram_trie: green
    161,  // crest: red
    37,   // prompt_lookup: cyan
    100,  // fused: olive
    29,   // fused_request: dark green
    67,   // fused_history: steel blue
    133,  // fused_prior: pink
    137,  // fused_recycled: brown
    66,   // grammar: slate
    136,  // ochre
    71,   // pale green
    168,  // rose
    62,   // violet
};
// A drafter without a colour would read past the table.
static_assert(kColours.size() >= kDrafterNames.size());

std::string ColourOf(DrafterId drafter) {
  if (drafter == DrafterId::kTarget) return kPlain;
  return absl::StrCat("\x1b[38;5;", kColours[static_cast<size_t>(drafter)],
                      "m");
}

}  // namespace

bool HasColours(int file_descriptor) {
  const char* const no_colour = std::getenv("NO_COLOR");
  // no-color.org: set and not empty turns colours off, whatever the value.
  return (no_colour == nullptr || *no_colour == '\0') &&
         isatty(file_descriptor) == 1;
}

std::string DrafterPainter::Change(DrafterId drafter) {
  if (!colours_ || drafter == current_) return "";
  current_ = drafter;
  return ColourOf(drafter);
}

std::string DrafterPainter::Paint(const GenerationDelta& delta) {
  for (size_t i = 0; i < delta.token_ids.size(); ++i) {
    const DrafterId drafter =
        i < delta.drafters.size() ? delta.drafters[i] : DrafterId::kTarget;
    ++tokens_[drafter];
    std::string text;
    // A model may have more rows than its tokenizer has tokens; those write
    // nothing.
    detokenizer_.Push(delta.token_ids[i], text).IgnoreError();
    // A token may complete no character, and then has no bytes to paint; the
    // bytes it holds back are counted to the token that completes the
    // character.
    if (!text.empty()) pieces_.push_back({text.size(), drafter});
  }
  text_ += delta.text;
  std::string out;
  size_t shown = 0;
  // Invariant: pieces_ and text_ describe the same stream of bytes, shown so
  // far. They advance at different speeds, because stop sequences hold text
  // back and a delta may split a token's text, so only the part that both have
  // is painted.
  while (shown < text_.size() && !pieces_.empty()) {
    Piece& piece = pieces_.front();
    const size_t bytes = std::min(piece.bytes, text_.size() - shown);
    out += Change(piece.drafter);
    out.append(text_, shown, bytes);
    shown += bytes;
    piece.bytes -= bytes;
    if (piece.bytes == 0) pieces_.pop_front();
  }
  text_.erase(0, shown);
  return out;
}

std::string DrafterPainter::Finish() {
  // Left over is text without a piece, such as the replacement of a character
  // that the last token left incomplete: no drafter wrote it.
  return absl::StrCat(Change(DrafterId::kTarget), std::exchange(text_, {}));
}

std::string DrafterPainter::Legend(bool colours) const {
  return absl::StrJoin(tokens_, ", ", [&](std::string* out, const auto& entry) {
    const auto& [drafter, tokens] = entry;
    const bool paint = colours && drafter != DrafterId::kTarget;
    absl::StrAppend(
        out, paint ? ColourOf(drafter) : "",
        drafter == DrafterId::kTarget ? "target" : DrafterName(drafter), " ",
        tokens, paint ? kPlain : "");
  });
}

}  // namespace foretoken::cli
