// Lexer of Jinja templates, with trim_blocks and lstrip_blocks set as
// transformers sets them: the line end after a tag is dropped, and so is the
// white space between the beginning of a line and a tag.
//
// One line end at the end of the source is dropped, too; every line end is read
// as \n.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_LEXER_H_
#define FORETOKEN_COMMON_TEXT_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken::jinja {

struct Token {
  enum class Kind : uint8_t {
    kData,        // text outside of tags
    kPrintBegin,  // {{
    kPrintEnd,    // }}
    kTagBegin,    // {%
    kTagEnd,      // %}
    kName,
    kString,  // `text` is its value
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 0;  // from 1
};

// InvalidArgument: "line 3: what".
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_LEXER_H_
