// Tool calls in the form of a model, as a grammar: what stands around a call is
// literal, and its arguments are valid under the schema of its function.
//
// The source is a JSON object:
//
//   {
//     "text": "before",
//     "opener": "<tool_call>",
//     "begin": "", "before_name": "<tool_call>\n{\"name\": \"",
//     "before_arguments": "\", \"arguments\": ",
//     "after_arguments": "}\n</tool_call>", "separator": "\n", "end": "",
//     "max_calls": 128,
//     "tools": [{"name": "f", "parameters": {"type": "object", ...}}, ...]
//   }
//
// A text is `begin`, then 1 to max_calls calls with separators between them,
// then `end`. A call is before_name NAME before_arguments ARGUMENTS
// after_arguments.
//
// `text`: "none"; "before": any text may stand before the calls, or in place of
// them; "instead": in place of them only. Such a text does not contain `opener`
// and, if there is a member `first`, does not begin with it after any white
// space, since the reader of the answer would take that for a call.
//
// The literals are strings, or arrays of strings and of {"control": NAME}, the
// special token of this name: its spelling in text tokens is another text.
#ifndef FORETOKEN_COMMON_GRAMMAR_TOOL_CALLS_H_
#define FORETOKEN_COMMON_GRAMMAR_TOOL_CALLS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/grammar.h"
#include "common/grammar/regex.h"

namespace foretoken::grammar {

inline constexpr int32_t kMaxToolCalls = 1024;

// Adds the rules of `source` and returns the symbol of the whole text. Text
// before or in place of calls must also match `content`. Names have 1..256 of
// A-Za-z0-9_-. and every tool its own; parameters are schemas of objects.
// InvalidArgument, Unimplemented and ResourceExhausted as AddJsonSchema gives
// them, by tool: "tool f: parameters: ...".
absl::StatusOr<Symbol> AddToolCalls(absl::string_view source,
                                    GrammarBuilder& builder,
                                    Expr content = Regexes::kAnything);

// Whether a tool of this name can be called under such a constraint.
bool IsToolName(absl::string_view name);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_TOOL_CALLS_H_
