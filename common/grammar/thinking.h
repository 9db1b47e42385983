// Thinking before a constrained text, as a grammar: all that a reader of
// answers cuts off as thinking, and then the constrained text to the byte.
//
// The reader (ThinkingSplitter) takes an answer for thinking that begins with
// the opening tag, also after white space, up to the first closing tag, and
// drops the white space after that. White space before the opening tag is not
// allowed here: it would leave no way but to think. So the text of the thinking
// does not contain the closing tag, a constrained text without thinking does
// not begin with the opening one, and after thinking it does not begin with
// white space. Where a constraint cannot be narrowed like that, a grammar's
// texts follow the closing tag directly and keep their white space.
#ifndef FORETOKEN_COMMON_GRAMMAR_THINKING_H_
#define FORETOKEN_COMMON_GRAMMAR_THINKING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/grammar/constraint.h"
#include "common/grammar/grammar.h"
#include "common/grammar/regex.h"

namespace foretoken::grammar {

// InvalidArgument names the tag that is missing, too long or not UTF-8.
absl::Status CheckThinking(const Thinking& thinking);

// White space that may follow the closing tag. The reader holds back as much.
inline constexpr int32_t kMaxThinkingSpaces = 16;

// Texts that a reader does not take for the beginning of thinking.
Expr NotThinking(const Thinking& thinking, Regexes& regexes);
// Those of them that nothing that follows makes the beginning of thinking.
Expr NeverThinking(const Thinking& thinking, Regexes& regexes);

// White space between the closing tag and the text.
enum class ThinkingSpace : uint8_t { kNone, kAllowed };

// Thinking, or none where the prompt has not opened it, then `text`. If white
// space is allowed, it must not matter whether a text begins with some.
Symbol AddThinkingBefore(const Thinking& thinking, Symbol text,
                         ThinkingSpace space, GrammarBuilder& builder);
// The same for the texts of a terminal, narrowed to those that the reader
// leaves as they are.
Symbol AddThinkingBeforeTerminal(const Thinking& thinking, Expr text,
                                 ThinkingSpace space, GrammarBuilder& builder);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_THINKING_H_
