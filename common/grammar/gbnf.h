// Grammars in llama.cpp's notation (GBNF).
#ifndef FORETOKEN_COMMON_GRAMMAR_GBNF_H_
#define FORETOKEN_COMMON_GRAMMAR_GBNF_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/grammar.h"

namespace foretoken::grammar {

// Adds the rules of `text` and returns the symbol of `root`. InvalidArgument
// names the line and what is wrong: syntax, a rule that is missing or defined
// twice, a construct that is not supported. At most 1 MiB.
absl::StatusOr<Symbol> AddGbnf(absl::string_view text, GrammarBuilder& builder);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_GBNF_H_
