// Regexes: regular expressions over bytes, with intersection and complement,
// matched by derivatives.
//
// The derivative of an expression by a byte matches what may follow that byte.
// Expressions are immutable and hash-consed: equal trees have equal ids, and
// the constructors simplify (associativity, commutativity and idempotence of
// Or and And; units and zeros), so that an expression has few different
// derivatives and a lazy DFA over them stays small.
//
// Source: J. Brzozowski, "Derivatives of Regular Expressions", JACM 1964;
// S. Owens et al., "Regular-expression derivatives re-examined", JFP 2009.
// Owned by one thread.
#ifndef FORETOKEN_COMMON_GRAMMAR_REGEX_H_
#define FORETOKEN_COMMON_GRAMMAR_REGEX_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/grammar/byte_set.h"

namespace foretoken::grammar {

using Expr = int32_t;  // an expression of one Regexes object

class Regexes {
 public:
  static constexpr Expr kNothing = 0;    // matches no text
  static constexpr Expr kEmpty = 1;      // matches the empty text
  static constexpr Expr kAnything = 2;   // matches every text
  static constexpr int32_t kUnbounded = -1;  // as `max` of Repeat

  // Once the expressions would take more than `max_bytes`, constructors return
  // kNothing and status() is ResourceExhausted: check it after building.
  explicit Regexes(int64_t max_bytes = int64_t{32} << 20);

  Expr Bytes(const ByteSet& set);  // one byte of the set
  Expr Literal(absl::string_view bytes);
  Expr Concat(absl::Span<const Expr> parts);
  Expr Concat(Expr first, Expr second);
  Expr Or(absl::Span<const Expr> parts);
  Expr Or(Expr first, Expr second) { return Or({first, second}); }
  Expr And(absl::Span<const Expr> parts);
  Expr And(Expr first, Expr second) { return And({first, second}); }
  Expr Not(Expr part);  // every text that `part` does not match
  // min..max times; 0 <= min <= max, or max kUnbounded.
  Expr Repeat(Expr part, int32_t min, int32_t max);
  Expr Optional(Expr part) { return Or(part, kEmpty); }
  Expr Star(Expr part) { return Repeat(part, 0, kUnbounded); }
  // Decimal numbers (an optional minus, digits, an optional point with digits)
  // whose value is a multiple of divisor / 10^scale: MultipleOf(25, 2) matches
  // "0.5" and "-12.75". Other texts are matched or not without meaning:
  // intersect with the numbers that are wanted. 1 <= divisor <= 10^15,
  // 0 <= scale <= 15.
  Expr MultipleOf(int64_t divisor, int32_t scale);

  bool nullable(Expr expr) const { return nodes_[expr].nullable; }
  Expr Derivative(Expr expr, uint8_t byte);
  // Whether the expression matches no text at all. Exact: searches the
  // derivatives if there is an And, Not or MultipleOf. ResourceExhausted if
  // more than `max_states` of them would have to be seen.
  absl::StatusOr<bool> MatchesNothing(Expr expr, int max_states = 20'000);

  // The length of a run of characters that the expression begins with, whatever
  // they are: of x{0,7}y 7, of x*y kEndless, if any(x) says that x matches every
  // character. Looks at the expression's form only: 0 if that does not tell.
  using CharacterTest = absl::FunctionRef<bool(Expr)>;
  static constexpr int32_t kEndless = int32_t{1} << 30;
  int32_t AnyRun(Expr expr, const CharacterTest& any) const;

  // The bytes of one class never tell two expressions apart that existed when
  // this was called: at most 256 classes, numbered from 0, by byte.
  struct ByteClasses {
    std::array<uint8_t, 256> class_of = {};
    std::vector<uint8_t> representative;  // [classes]
  };
  ByteClasses Classes() const;

  absl::Status status() const;
  int64_t bytes() const { return bytes_; }  // memory, about
  // Sets the bound to `bytes` more than the expressions take now.
  void AllowMore(int64_t bytes) { max_bytes_ = bytes_ + bytes; }

 private:
  enum class Kind : uint8_t {
    kNothing, kEmpty, kBytes, kConcat, kOr, kAnd, kNot, kRepeat, kMultiple
  };
  struct Node {
    Kind kind = Kind::kNothing;
    bool nullable = false;
    bool plain = true;  // made without And, Not and MultipleOf
    // kBytes: an index into sets_; kConcat: head and tail; kOr, kAnd: an index
    // into parts_, and the number of parts; kNot, kRepeat: the part; kMultiple:
    // an index into multiples_.
    int32_t first = 0;
    int32_t second = 0;
    int32_t min = 0, max = 0;  // kRepeat
  };
  // Remainder of a division of the number whose digits came so far.
  struct Multiple {
    int64_t divisor = 1;
    int64_t remainder = 0;
    int32_t scale = 0;   // digits after the point that still count
    bool begun = false;  // a minus or a digit was read
    bool digit = false;  // a digit was read
    bool point = false;
    bool operator==(const Multiple&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Multiple& m) {
      return H::combine(std::move(h), m.divisor, m.remainder, m.scale, m.begun,
                        m.digit, m.point);
    }
  };

  Expr Intern(Node node, absl::Span<const Expr> parts = {});
  Expr InternMultiple(const Multiple& state);
  Expr OrFactored(std::vector<Expr> parts, int depth);
  // The parts without nested nodes of the same kind.
  std::vector<Expr> Flatten(Kind kind, absl::Span<const Expr> parts) const;
  Expr NewDerivative(Expr expr, uint8_t byte);
  Expr MultipleDerivative(Multiple state, uint8_t byte);
  bool SameNode(Expr expr, const Node& node,
                absl::Span<const Expr> parts) const;
  absl::Span<const Expr> parts(const Node& node) const {
    return absl::MakeConstSpan(parts_).subspan(node.first, node.second);
  }
  bool Contains(absl::Span<const Expr> sorted, Expr expr) const;
  void Charge(int64_t bytes);

  std::vector<Node> nodes_;
  std::vector<Expr> parts_;  // of Or and And, sorted
  std::vector<ByteSet> sets_;
  std::vector<Multiple> multiples_;
  // Nodes by hash; those of equal hash follow each other in next_.
  absl::flat_hash_map<uint64_t, Expr> index_;
  std::vector<Expr> next_;  // [nodes], -1: the last
  absl::flat_hash_map<ByteSet, int32_t> set_index_;
  absl::flat_hash_map<Multiple, int32_t> multiple_index_;
  absl::flat_hash_map<uint64_t, Expr> derivatives_;  // by expr * 256 + byte
  absl::flat_hash_map<Expr, bool> matches_nothing_;
  // Bytes to try in a search, for the first `tried_sets_` sets and, if
  // `tried_multiples_`, for multiples.
  std::vector<uint8_t> tries_;
  size_t tried_sets_ = 0;
  bool tried_multiples_ = false;
  int64_t max_bytes_;
  int64_t bytes_ = 0;
  bool exhausted_ = false;
};

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_REGEX_H_
