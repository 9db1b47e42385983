// ThinkingSplitter: the text of an answer, as it streams in, as what the model
// thinks and what it answers.
//
// An answer thinks if its prompt opened the tag, or if its first text after
// white space is the opening tag; it does so until the first closing tag, or to
// its end. All other text is content. White space at both ends of the thinking
// and before the content goes with the tags.
//
// However the text is cut, the joined parts are the same. A tag that has begun
// and at most kMaxSpaces bytes of white space are held back.
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_THINKING_SPLITTER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_THINKING_SPLITTER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/text/chat/tag_matcher.h"
#include "common/text/chat/thinking.h"

namespace foretoken {

struct ThinkingOptions {
  bool opened = false;  // the prompt ended inside the thinking
  // The thinking with its tags and all white space, as the model wrote it.
  bool verbatim = false;
  // White space after the closing tag is content: a grammar may ask for it.
  bool keeps_space = false;
};

class ThinkingSplitter {
 public:
  // Before a tag, more white space than that belongs to the text around it.
  static constexpr size_t kMaxSpaces = 64;

  // Thinking comes before content.
  struct Parts {
    std::string thinking;
    std::string content;
  };

  ThinkingSplitter(const ThinkingTags& tags, const ThinkingOptions& options);

  // The next text of the answer, control tokens spelled (SpelledControls).
  Parts Add(absl::string_view text);
  // The same for a special token that is one of the tags. One that neither
  // begins the thinking nor comes within it is dropped, as special tokens are
  // elsewhere in an answer, and what follows is content.
  Parts AddTag(absl::string_view tag);
  // The end of the answer: returns what was held back. Once.
  Parts Finish();

  bool IsTag(absl::string_view text) const {
    return text == tags_.open || text == tags_.close;
  }
  // Bytes of the answer, from its beginning, that are the thinking and its tags
  // as far as it has come.
  int64_t thinking_bytes() const { return thinking_bytes_; }
  // The thinking has begun and goes on.
  bool inside() const { return state_ == State::kInside; }
  // All that follows is content.
  bool ended() const {
    return state_ == State::kBehind || state_ == State::kContent;
  }

 private:
  enum class State : uint8_t {
    kBefore,  // the tag may still be opened
    kInside,
    kBehind,  // white space between the closing tag and the content
    kContent,
  };

  void Take(char c);
  void TakeBefore(char c);
  void TakeInside(char c);
  void Think(absl::string_view text);

  const ThinkingTags tags_;
  const ThinkingOptions options_;
  State state_;
  TagMatcher close_;
  size_t opened_ = 0;     // bytes of the opening tag that were seen
  std::string held_;      // white space, and the opening tag
  bool thought_ = false;  // thinking other than white space has come
  int64_t thinking_bytes_ = 0;
  Parts parts_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_THINKING_SPLITTER_H_
