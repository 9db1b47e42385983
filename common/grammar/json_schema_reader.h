// SchemaReader: what a set of schemas says about one value.
//
// A set of schemas, each as it is or negated, is expanded into branches: each
// is a conjunction of constraints by type, and the values that the set allows
// are those of its branches together. References, allOf, anyOf, oneOf, not, if
// and the keywords beside them are gone by then, and negation has moved down to
// the constraints. Branches hold schemas of parts (members, items) as sets in
// turn, which are expanded when they are asked for: recursive schemas are
// finite here, as there are finitely many sets.
//
// A keyword that cannot be expressed becomes a refusal of its branch, for the
// types that it constrains, and fails a schema only where such a value is still
// possible in the end.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_GRAMMAR_JSON_SCHEMA_READER_H_
#define FORETOKEN_COMMON_GRAMMAR_JSON_SCHEMA_READER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/json_schema_document.h"
#include "common/grammar/json_text.h"
#include "common/grammar/json_value.h"
#include "common/grammar/regex.h"

namespace foretoken::grammar {

// Kinds of values, as bits. 3.0 is an integer.
enum JsonTypes : uint8_t {
  kNullType = 1,
  kFalseType = 2,
  kTrueType = 4,
  kIntegerType = 8,
  kFractionType = 16,
  kStringType = 32,
  kArrayType = 64,
  kObjectType = 128,
  kBooleanTypes = kFalseType | kTrueType,
  kNumberTypes = kIntegerType | kFractionType,
  kStructures = kArrayType | kObjectType,
  kAllTypes = 255,
};

// A schema or, with the lowest bit set, its negation.
using Atom = int32_t;
// A conjunction: sorted, each once. Empty: any value.
using SchemaSet = std::vector<Atom>;

struct Refusal {
  uint8_t types = 0;
  absl::string_view keyword;
  absl::Status status;
};

struct Limit {
  Decimal value;
  bool exclusive = false;
};

// Constraints of one schema's object keywords on the values of members.
struct MemberRules {
  struct Property {
    absl::string_view name;
    const Schema* schema;
  };
  struct Pattern {
    Expr key = Regexes::kNothing;  // what stands between the quotes
    const Schema* schema;
  };
  std::vector<Property> properties;
  absl::flat_hash_map<absl::string_view, const Schema*> by_name;
  std::vector<Pattern> patterns;
  const Schema* additional = nullptr;  // of all other keys
  // A pattern cannot be read.
  absl::Status refusal;
  absl::string_view refused;
};

// Constraints of one schema's array keywords on the items.
struct ItemRules {
  std::vector<const Schema*> first;
  const Schema* rest = nullptr;  // of the items after `first`
};

struct Branch {
  uint8_t types = kAllTypes;
  // One of these, if there is such a list; none of those. Numbers of values
  // in the reader, sorted.
  std::optional<std::vector<int32_t>> values;
  std::vector<int32_t> excluded;

  std::vector<Expr> contents;  // between the quotes, as json.dumps writes it
  int64_t min_length = 0, max_length = kUnlimited;

  std::optional<Limit> min, max;
  // Divisors; and whether they must not divide.
  std::vector<std::pair<std::string, bool>> divisors;

  std::vector<const ItemRules*> items;
  std::vector<Atom> every_item;
  std::vector<Atom> some_item;  // each holds for at least one item
  bool unique = false;
  int64_t min_items = 0, max_items = kUnlimited;

  std::vector<const MemberRules*> members;
  std::vector<std::pair<absl::string_view, Atom>> member_atoms;
  std::vector<absl::string_view> required;
  std::vector<absl::string_view> forbidden;
  std::vector<std::pair<absl::string_view, absl::string_view>> needs;
  std::vector<Atom> names;
  // Some member that these rules do not name, with a value that their
  // `additional` does not allow.
  std::vector<std::pair<const MemberRules*, const Schema*>> extra;
  int64_t min_members = 0, max_members = kUnlimited;

  std::vector<const Refusal*> refusals;

  static constexpr int64_t kUnlimited = INT64_MAX;
};

// Keys that no schema names, by what is said about their values.
struct OtherMembers {
  Expr key = Regexes::kNothing;  // between the quotes
  SchemaSet value;
};

class SchemaReader {
 public:
  // Both must outlive the reader.
  SchemaReader(SchemaDocument& document, Regexes& regexes,
               bool skip_unsupported);
  SchemaReader(const SchemaReader&) = delete;
  SchemaReader& operator=(const SchemaReader&) = delete;

  // The set of one schema.
  SchemaSet SetOf(const Schema& schema) const;
  SchemaSet WithAtom(SchemaSet set, Atom atom) const {
    AddAtom(atom, set);
    return set;
  }
  // For messages: where the first of its schemas is.
  std::string Path(const SchemaSet& set) const;
  // The sets that together allow what `set` allows, if that is all that it
  // says; otherwise none.
  absl::StatusOr<std::vector<SchemaSet>> UnionOf(const SchemaSet& set);

  // The branches of a set, without those that are known to be empty; stays
  // valid. InvalidArgument: malformed, or a reference cycle. ResourceExhausted:
  // too many branches.
  absl::StatusOr<const std::vector<Branch>*> Expand(const SchemaSet& set);

  // Whether the set is known to allow no value at all. Sees what follows from
  // types, values, bounds, required members and items.
  absl::StatusOr<bool> IsEmpty(const SchemaSet& set);
  // Unimplemented if a refused keyword decides.
  absl::StatusOr<bool> Allows(const SchemaSet& set, const JsonValue& value);
  // Whether the branch would allow an array or an object if it did not exclude
  // it.
  absl::StatusOr<bool> AllowsParts(const Branch& branch,
                                   const JsonValue& value) {
    return value.kind == JsonValue::kArray ? AllowsArray(branch, value)
                                           : AllowsObject(branch, value);
  }

  // The parts of a branch's objects and arrays.
  absl::StatusOr<SchemaSet> MemberSet(const Branch& branch,
                                      absl::string_view key);
  // The keys that the branch names and allows, in their order.
  absl::StatusOr<std::vector<absl::string_view>> NamedKeys(
      const Branch& branch);
  // The keys that it allows and does not name.
  absl::StatusOr<std::vector<OtherMembers>> Others(const Branch& branch);
  SchemaSet ItemSet(const Branch& branch, int64_t index) const;
  // The number of items from which on all have one set.
  static int64_t FirstItems(const Branch& branch);

  // The text between the quotes of a branch's strings, without `values`, as
  // json.dumps writes it.
  Expr StringContent(const Branch& branch);
  // The same with every escape, if only the length is limited.
  Expr AnyStringContent(int64_t min_length, int64_t max_length);
  // The numbers of a branch, without `values` and `excluded`.
  absl::StatusOr<Expr> NumberText(const Branch& branch, bool with_point);

  // Fails if a keyword of one of these types was refused; in a lenient reader
  // takes note of it instead.
  absl::Status CheckRefusals(const Branch& branch, uint8_t types);
  // Says that a keyword of the set cannot be expressed; a lenient reader takes
  // note of it and returns OK, and the caller goes on without it.
  absl::Status Unsupported(const SchemaSet& set, Keyword keyword,
                           absl::string_view why);
  const std::set<std::string>& unchecked() const { return unchecked_; }

  bool Matches(Expr expr, absl::string_view text);
  static uint8_t TypeOf(const JsonValue& value);
  // Equal values (1 and 1.0) have one number.
  const JsonValue& value(int32_t number) const { return *values_[number]; }
  int32_t NumberOf(const JsonValue& value);
  static void Raise(std::optional<Limit>& limit, const Limit& min);
  static void Lower(std::optional<Limit>& limit, const Limit& max);
  // One of these texts.
  Expr AnyOf(std::vector<std::string> texts);

 private:
  using Branches = std::vector<Branch>;
  // The schemas that are being applied to one value, outermost first.
  using Active = std::vector<Atom>;
  using Change = absl::FunctionRef<absl::Status(Branches&)>;

  absl::StatusOr<Branches> ExpandNew(const SchemaSet& set);
  absl::Status Apply(Atom atom, Active& active, Branches& branches);
  absl::Status ApplyKeywords(const Schema& schema, Active& active,
                             Branches& branches);
  absl::Status ApplyNegated(const Schema& schema, Active& active,
                            Branches& branches);
  absl::Status Constrain(const Schema& schema, Keyword keyword,
                         const JsonValue& value, Branches& branches);
  absl::Status ConstrainMembers(const Schema& schema, Keyword keyword,
                                const JsonValue& value, Branches& branches);
  absl::Status ConstrainItems(const Schema& schema, Keyword keyword,
                              const JsonValue& value, Branches& branches);
  absl::Status ApplyDependencies(const Schema& schema, Keyword keyword,
                                 const JsonValue& value, Active& active,
                                 Branches& branches);
  absl::Status ApplyOneOf(const Schema& schema, const JsonValue& value,
                          Active& active, Branches& branches);
  absl::Status ApplyIf(const Schema& schema, const JsonValue& value,
                       bool negated, Active& active, Branches& branches);
  // Makes `out` longer by the branches as `change` leaves them.
  absl::Status Alternative(const Branches& branches, Change change,
                           Branches& out);
  absl::Status Narrow(Branches& branches);
  absl::Status Narrow(Branch& branch);
  absl::Status NarrowObject(Branch& branch);
  absl::Status NarrowArray(Branch& branch);
  absl::Status ResolveExtra(Branches& branches);
  absl::Status FilterValues(Branch& branch);

  // Each adds to `out` the ways in which a keyword does not hold.
  absl::Status NegateKeyword(const Schema& schema, Keyword keyword,
                             const JsonValue& value, Active& active,
                             const Branches& branches, Branches& out);
  absl::Status NegateScalar(const Schema& schema, Keyword keyword,
                            const JsonValue& value, const Branches& branches,
                            Branches& out);
  absl::Status NegateMembers(const Schema& schema, Keyword keyword,
                             const JsonValue& value, const Branches& branches,
                             Branches& out);
  absl::Status NegateItems(const Schema& schema, Keyword keyword,
                           const JsonValue& value, const Branches& branches,
                           Branches& out);
  absl::Status NegateDependencies(const Schema& schema, Keyword keyword,
                                  const JsonValue& value, Active& active,
                                  const Branches& branches, Branches& out);
  absl::Status NegateOneOf(const Schema& schema, const JsonValue& value,
                           Active& active, const Branches& branches,
                           Branches& out);
  absl::StatusOr<bool> KeepInvalid(const Schema& schema,
                                   std::vector<int32_t>& values);
  absl::Status CannotNegate(const Schema& schema, Keyword keyword,
                            uint8_t types, const Branches& branches,
                            Branches& out);

  absl::StatusOr<std::vector<const Schema*>> SubList(const Schema& schema,
                                                     Keyword keyword,
                                                     const JsonValue& value);
  // [i * n + j]: whether both of i and j may hold for one value.
  absl::StatusOr<std::vector<bool>> Overlaps(
      const Schema& schema, const std::vector<const Schema*>& list,
      Active& active, const Branches& context);
  absl::StatusOr<const MemberRules*> Members(const Schema& schema);
  absl::StatusOr<const ItemRules*> Items(const Schema& schema);
  absl::StatusOr<uint8_t> ReadTypes(const Schema& schema,
                                    const JsonValue& value);
  void Refuse(const Schema& schema, Keyword keyword, uint8_t types,
              absl::string_view why, Branches& branches);
  void Add(const Schema& schema, bool negated, SchemaSet& set) const;
  void AddAtom(Atom atom, SchemaSet& set) const;
  absl::Status Work(int64_t units);

  absl::StatusOr<bool> BranchAllows(const Branch& branch,
                                    const JsonValue& value);
  absl::StatusOr<bool> AllowsScalar(const Branch& branch,
                                    const JsonValue& value);
  absl::StatusOr<bool> AllowsObject(const Branch& branch,
                                    const JsonValue& value);
  absl::StatusOr<bool> AllowsArray(const Branch& branch,
                                   const JsonValue& value);
  absl::StatusOr<bool> AllowsName(const Branch& branch, absl::string_view key);
  static std::vector<absl::string_view> DeclaredKeys(const Branch& branch);
  absl::StatusOr<Expr> NewNumberText(const Branch& branch, bool with_point);
  absl::StatusOr<Expr> NameContent(const Branch& branch);
  Expr AnyOfSorted(const std::vector<std::string>& texts, size_t begin,
                   size_t end, size_t offset, int depth);
  absl::StatusOr<std::vector<int32_t>> ReadValues(const Schema& schema,
                                                  Keyword keyword,
                                                  const JsonValue& value);
  const absl::StatusOr<Expr>& Pattern(absl::string_view pattern);
  const absl::StatusOr<Expr>& Format(absl::string_view format);

  SchemaDocument& document_;
  Regexes& regexes_;
  const bool skip_unsupported_;
  const Expr any_code_point_;  // as json.dumps writes it
  const Expr any_text_;
  // Expressions that many schemas share.
  absl::flat_hash_map<std::pair<int64_t, int64_t>, Expr> string_contents_;
  absl::flat_hash_map<std::pair<uint8_t, bool>, Expr> number_texts_;
  std::vector<const JsonValue*> values_;
  absl::flat_hash_map<const JsonValue*, int32_t> value_numbers_;
  absl::flat_hash_map<std::string, int32_t> value_of_text_;
  absl::flat_hash_map<SchemaSet, std::unique_ptr<Branches>> expanded_;
  absl::flat_hash_map<SchemaSet, bool> empty_;
  absl::flat_hash_set<SchemaSet> being_emptied_;
  absl::flat_hash_map<int32_t, std::unique_ptr<MemberRules>> member_rules_;
  absl::flat_hash_map<int32_t, std::unique_ptr<ItemRules>> item_rules_;
  // Nodes stay in place while others are added.
  std::map<std::string, absl::StatusOr<Expr>, std::less<>> patterns_;
  std::map<std::string, absl::StatusOr<Expr>, std::less<>> formats_;
  std::deque<Refusal> refusals_;
  std::set<std::string> unchecked_;
  int64_t work_ = 0;
  int depth_ = 0;  // schemas and sets being looked at, each for another
};

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_JSON_SCHEMA_READER_H_
