// DrafterPainter: generated text in which every token has the colour of the
// drafter that supplied it, after Figure 7 of the Ouroboros paper
// (arXiv:2402.13720).
//
// Owned by one thread.
#ifndef FORETOKEN_TOOLS_CLI_CHAT_DRAFTER_PAINTER_H_
#define FORETOKEN_TOOLS_CLI_CHAT_DRAFTER_PAINTER_H_

#include <cstddef>
#include <deque>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "common/generation/generation.h"
#include "common/speculation/drafter_id.h"
#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"

namespace foretoken::cli {

// Whether output to a file descriptor is coloured: it is a terminal, and
// NO_COLOR is not set (no-color.org).
bool HasColours(int file_descriptor);

class DrafterPainter {
 public:
  // `tokenizer` must outlive this object. Without colours the text stays
  // as it is.
  DrafterPainter(const Tokenizer& tokenizer, bool colours)
      : colours_(colours),
        detokenizer_(tokenizer, Detokenizer::Start::kBehindPrompt) {}

  // The text of a delta, painted. Text whose token has not come is held back.
  std::string Paint(const GenerationDelta& delta);
  // The end of the answer: what was held back, and the terminal's own colours.
  std::string Finish();
  // One line: each drafter's name, in its colour if asked for, with its tokens.
  std::string Legend(bool colours) const;

 private:
  struct Piece {
    size_t bytes = 0;
    DrafterId drafter = DrafterId::kTarget;
  };

  std::string Change(DrafterId drafter);

  const bool colours_;
  Detokenizer detokenizer_;
  std::deque<Piece> pieces_;  // tokens whose text has not been shown
  std::string text_;          // not shown yet
  DrafterId current_ = DrafterId::kTarget;
  std::map<DrafterId, int64_t> tokens_;
};

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_CHAT_DRAFTER_PAINTER_H_
