// Structural tags: text that is free until one of some triggers, after which a
// tag follows: its beginning, content of a given form, its end. vLLM and SGLang
// take them as a response format, in two notations:
//
//   {"type": "structural_tag", "triggers": ["<function="], "structures":
//     [{"begin": "<function=f>", "schema": SCHEMA, "end": "</function>"}]}
//   {"type": "structural_tag", "format": FORMAT}
//
// A FORMAT is an object with a `type`:
//
//   const_string         value
//   json_schema          json_schema
//   regex                pattern, of the whole text
//   grammar              grammar, GBNF
//   any_text
//   sequence, or         elements: formats
//   tag                  begin, content: a format, end: a text or several
//   triggered_tags       triggers, tags, at_least_one (false): no text before
//                        the first tag; stop_after_first (false): nothing after
//   tags_with_separator  tags, separator, at_least_one, stop_after_first
//
// Null members count as absent. Every trigger that the text contains begins a
// tag. A tag belongs to the one trigger that its `begin` starts with; no
// trigger contains another, and at most 16 may overlap. A tag whose
// content is any_text ends where its `end` first occurs; free text deeper
// within a tag is refused, since it could run over that end.
//
// Source: the notation is that of XGrammar, arXiv:2411.15100, and its
// documentation.
#ifndef FORETOKEN_COMMON_GRAMMAR_STRUCTURAL_TAG_H_
#define FORETOKEN_COMMON_GRAMMAR_STRUCTURAL_TAG_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/grammar.h"
#include "common/grammar/regex.h"

namespace foretoken::grammar {

// Adds the rules of `source` and returns the symbol of the whole text. The
// errors are those of AddJsonSchema, ParseRegex and AddGbnf, and name the
// place: "structural tag: format.tags[0].content: ...". At most 1,024 tags or
// elements and 256 triggers in one place, 64 formats within each other. Free
// text with which the whole one may begin is of `first_text`.
absl::StatusOr<Symbol> AddStructuralTag(absl::string_view source,
                                        GrammarBuilder& builder,
                                        Expr first_text = Regexes::kAnything);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_STRUCTURAL_TAG_H_
