// Matching by derivatives, for tests of what builds expressions.
#ifndef FORETOKEN_TESTS_UNIT_GRAMMAR_MATCH_H_
#define FORETOKEN_TESTS_UNIT_GRAMMAR_MATCH_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/grammar/regex.h"

namespace foretoken::grammar {

inline bool Matches(Regexes& regexes, Expr expr, absl::string_view text) {
  for (const char byte : text) {
    expr = regexes.Derivative(expr, static_cast<uint8_t>(byte));
    if (expr == Regexes::kNothing) return false;
  }
  return regexes.nullable(expr);
}

}  // namespace foretoken::grammar

#endif  // FORETOKEN_TESTS_UNIT_GRAMMAR_MATCH_H_
