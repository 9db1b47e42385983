// SchemaLowering: rules of a grammar for the values that sets of schemas allow.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_GRAMMAR_JSON_SCHEMA_LOWERING_H_
#define FORETOKEN_COMMON_GRAMMAR_JSON_SCHEMA_LOWERING_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/grammar.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/json_schema_reader.h"

namespace foretoken::grammar {

class SchemaLowering {
 public:
  // Both must outlive this object.
  SchemaLowering(const JsonStyle& style, SchemaReader& reader,
                 GrammarBuilder& builder);

  // Adds all rules for values that `set` allows; other sets are lowered as they
  // are met, each once.
  absl::StatusOr<Symbol> Lower(const SchemaSet& set);

 private:
  // The symbol of a set; its rules may have to be added still.
  absl::StatusOr<Symbol> SymbolOf(const SchemaSet& set);
  absl::Status AddRules(Symbol symbol, const SchemaSet& set);
  // All of a branch (one of `set`) but its arrays and objects.
  absl::Status AddScalars(const SchemaSet& set, const Branch& branch,
                          std::vector<Expr>& texts);
  absl::Status AddArray(Symbol symbol, const SchemaSet& set,
                        const Branch& branch);
  // False if they cannot be expressed.
  absl::StatusOr<bool> AddUniqueItems(Symbol symbol, const Branch& branch,
                                      int64_t max);
  absl::StatusOr<bool> AddContains(Symbol symbol, const Branch& branch,
                                   int64_t max);
  absl::Status AddObject(Symbol symbol, const SchemaSet& set,
                         const Branch& branch);

  Expr NumberLiteral(const JsonValue& value);
  // The text of a value; nullopt if its members may come in several orders.
  std::optional<Expr> ValueText(const JsonValue& value);
  Symbol ValueSymbol(const JsonValue& value);
  // A key and its colon; `content` stands between the quotes.
  Expr KeyText(Expr content);
  Expr KeyLiteral(absl::string_view key);
  Expr Quoted(Expr content);
  Expr Literal(absl::string_view text) { return regexes_.Literal(text); }

  const JsonStyle style_;
  SchemaReader& reader_;
  GrammarBuilder& builder_;
  Regexes& regexes_;
  Expr space_ = Regexes::kEmpty;  // between tokens
  Expr comma_, colon_, open_array_, close_array_, open_object_, close_object_;
  absl::flat_hash_map<SchemaSet, Symbol> symbols_;
  std::deque<std::pair<Symbol, SchemaSet>> queue_;
};

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_JSON_SCHEMA_LOWERING_H_
