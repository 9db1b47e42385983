// JSON Schema to a grammar of the texts that are valid under it.
//
// Drafts 4 to 2020-12, as schemas are written in the wild. What cannot be
// expressed exactly is refused by keyword and path, never ignored: a text that
// the grammar allows is valid, and every valid value has a text.
#ifndef FORETOKEN_COMMON_GRAMMAR_JSON_SCHEMA_H_
#define FORETOKEN_COMMON_GRAMMAR_JSON_SCHEMA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/grammar.h"

namespace foretoken::grammar {

// How values are written. Members are separated by ", " and keys end in ": ",
// as json.dumps writes them.
struct JsonStyle {
  // Members of an object in the order of `properties`, then others; otherwise
  // in any order.
  bool schema_order = true;
  // 3.0 is an integer as well as 3.
  bool integers_with_point = false;
  // Whitespace between tokens is free (at most 16 characters at a place) in
  // place of exactly one space after "," and ":".
  bool free_whitespace = false;
};

struct JsonSchemaOptions {
  JsonStyle style;
  // Keywords that cannot be expressed are left out and listed in place of an
  // error. For measurements only.
  bool skip_unsupported = false;
};

struct JsonSchemaResult {
  Symbol root = 0;
  std::vector<std::string> unchecked;  // sorted, each once
};

// InvalidArgument: not JSON, not a schema, unsatisfiable. Unimplemented: a
// keyword that cannot be expressed; both name the path ("/properties/a: not:
// ..."). ResourceExhausted: a limit. `schema`: at most 10 MiB (the caller's
// limit may be lower).
absl::StatusOr<JsonSchemaResult> AddJsonSchema(absl::string_view schema,
                                               const JsonSchemaOptions& options,
                                               GrammarBuilder& builder);

// Any JSON value; `object`: any JSON object.
Symbol AddAnyJson(const JsonStyle& style, bool object, GrammarBuilder& builder);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_JSON_SCHEMA_H_
