#include "common/grammar/regex.h"

#include <algorithm>
#include <deque>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

namespace foretoken::grammar {
namespace {

// Alternatives with a common beginning are joined this many bytes deep; deeper
// the native stack would be at stake.
constexpr int kMaxFactoring = 512;
// Memory of a node with its places in the indices, about.
constexpr int64_t kNodeBytes = 64;
constexpr int64_t kDerivativeBytes = 24;
// Steps along a concatenation that one derivative may take; more are charged
// as memory, so that time is bounded with it.
constexpr size_t kFreeSteps = 16;
constexpr int64_t kStepBytes = 16;

int64_t PowerOfTen(int32_t exponent) {
  int64_t power = 1;
  for (int32_t i = 0; i < exponent; ++i) power *= 10;
  return power;
}

}  // namespace

Regexes::Regexes(int64_t max_bytes) : max_bytes_(max_bytes) {
  Intern({.kind = Kind::kNothing});
  Intern({.kind = Kind::kEmpty, .nullable = true});
  // Everything: kNothing's complement. Plain, since it cannot be empty.
  Intern({.kind = Kind::kNot, .nullable = true, .first = kNothing});
}

absl::Status Regexes::status() const {
  if (!exhausted_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the regular expressions take more than ", max_bytes_,
                   " bytes"));
}

void Regexes::Charge(int64_t bytes) {
  bytes_ += bytes;
  if (bytes_ > max_bytes_) exhausted_ = true;
}

bool Regexes::SameNode(Expr expr, const Node& node,
                       absl::Span<const Expr> parts_of_node) const {
  const Node& other = nodes_[expr];
  if (other.kind != node.kind) return false;
  switch (node.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return true;
    case Kind::kBytes:
    case Kind::kNot:
    case Kind::kMultiple:
      return other.first == node.first;
    case Kind::kConcat:
      return other.first == node.first && other.second == node.second;
    case Kind::kRepeat:
      return other.first == node.first && other.min == node.min &&
             other.max == node.max;
    case Kind::kOr:
    case Kind::kAnd:
      return parts(other) == parts_of_node;
  }
  return false;
}

Expr Regexes::Intern(Node node, absl::Span<const Expr> parts_of_node) {
  const bool set = node.kind == Kind::kOr || node.kind == Kind::kAnd;
  const uint64_t hash =
      set ? absl::HashOf(node.kind, parts_of_node)
          : absl::HashOf(node.kind, node.first, node.second, node.min,
                         node.max);
  const auto [found, fresh] =
      index_.try_emplace(hash, static_cast<Expr>(nodes_.size()));
  if (!fresh) {
    for (Expr expr = found->second; expr >= 0; expr = next_[expr]) {
      if (SameNode(expr, node, parts_of_node)) return expr;
    }
  }
  Charge(kNodeBytes + static_cast<int64_t>(parts_of_node.size() * sizeof(Expr)));
  if (exhausted_) {
    if (fresh) index_.erase(found);
    return kNothing;
  }
  const Expr expr = static_cast<Expr>(nodes_.size());
  if (set) {
    node.first = static_cast<int32_t>(parts_.size());
    node.second = static_cast<int32_t>(parts_of_node.size());
    parts_.insert(parts_.end(), parts_of_node.begin(), parts_of_node.end());
  }
  nodes_.push_back(node);
  next_.push_back(fresh ? -1 : found->second);
  found->second = expr;
  return expr;
}

Expr Regexes::Bytes(const ByteSet& set) {
  if (set.empty()) return kNothing;
  const auto [found, fresh] =
      set_index_.try_emplace(set, static_cast<int32_t>(sets_.size()));
  if (fresh) {
    sets_.push_back(set);
    Charge(kNodeBytes);
  }
  return Intern({.kind = Kind::kBytes, .first = found->second});
}

Expr Regexes::Literal(absl::string_view bytes) {
  Expr expr = kEmpty;
  for (size_t i = bytes.size(); i-- > 0;) {
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    expr = Concat(Bytes(ByteSet::Range(byte, byte)), expr);
  }
  return expr;
}

Expr Regexes::Concat(absl::Span<const Expr> parts_to_join) {
  Expr expr = kEmpty;
  for (size_t i = parts_to_join.size(); i-- > 0;) {
    expr = Concat(parts_to_join[i], expr);
  }
  return expr;
}

Expr Regexes::Concat(Expr first, Expr second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  // Heads are never concatenations themselves: (ab)c is a(bc).
  std::vector<Expr> heads;
  while (nodes_[first].kind == Kind::kConcat) {
    heads.push_back(nodes_[first].first);
    first = nodes_[first].second;
  }
  heads.push_back(first);
  for (size_t i = heads.size(); i-- > 0;) {
    second = Intern(
        {.kind = Kind::kConcat,
         .nullable = nodes_[heads[i]].nullable && nodes_[second].nullable,
         .plain = nodes_[heads[i]].plain && nodes_[second].plain,
         .first = heads[i],
         .second = second});
    if (second == kNothing) return kNothing;
  }
  return second;
}

std::vector<Expr> Regexes::Flatten(Kind kind,
                                   absl::Span<const Expr> given) const {
  std::vector<Expr> flat;
  for (const Expr part : given) {
    if (nodes_[part].kind == kind) {
      // A node's own parts are flat already.
      const auto nested = parts(nodes_[part]);
      flat.insert(flat.end(), nested.begin(), nested.end());
    } else {
      flat.push_back(part);
    }
  }
  return flat;
}

bool Regexes::Contains(absl::Span<const Expr> sorted, Expr expr) const {
  return std::binary_search(sorted.begin(), sorted.end(), expr);
}

Expr Regexes::Or(absl::Span<const Expr> given) {
  return OrFactored(Flatten(Kind::kOr, given), 0);
}

Expr Regexes::OrFactored(std::vector<Expr> flat, int depth) {
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  // Single bytes become one set; alternatives that begin with the same set
  // share it, so that a thousand words are a trie.
  ByteSet bytes;
  bool has_bytes = false;
  absl::flat_hash_map<Expr, std::vector<Expr>> tails;
  std::vector<Expr> heads;  // in the order in which they come
  std::vector<Expr> kept;
  for (const Expr part : flat) {
    const Node& node = nodes_[part];
    if (part == kNothing) continue;
    if (part == kAnything) return kAnything;
    if (node.kind == Kind::kBytes) {
      bytes = bytes | sets_[node.first];
      has_bytes = true;
    } else if (depth < kMaxFactoring && node.kind == Kind::kConcat &&
               nodes_[node.first].kind == Kind::kBytes) {
      std::vector<Expr>& same = tails[node.first];
      if (same.empty()) heads.push_back(node.first);
      same.push_back(node.second);
    } else {
      kept.push_back(part);
    }
  }
  if (has_bytes) {
    const Expr one = Bytes(bytes);
    // A byte alone is that byte before the empty text.
    const auto same = tails.find(one);
    if (same != tails.end()) {
      same->second.push_back(kEmpty);
    } else {
      kept.push_back(one);
    }
  }
  for (const Expr head : heads) {
    std::vector<Expr>& same = tails[head];
    const Expr tail =
        same.size() == 1
            ? same[0]
            : OrFactored(Flatten(Kind::kOr, same), depth + 1);
    kept.push_back(Concat(head, tail));
  }
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  bool nullable = false, plain = true;
  for (const Expr part : kept) {
    if (part != kEmpty && nodes_[part].nullable) nullable = true;
    plain = plain && nodes_[part].plain;
    if (nodes_[part].kind == Kind::kNot &&
        Contains(kept, nodes_[part].first)) {
      return kAnything;
    }
  }
  // The empty text adds nothing to what matches it already.
  if (nullable) kept.erase(std::remove(kept.begin(), kept.end(), kEmpty),
                           kept.end());
  if (kept.empty()) return kNothing;
  if (kept.size() == 1) return kept[0];
  for (const Expr part : kept) nullable = nullable || nodes_[part].nullable;
  return Intern({.kind = Kind::kOr, .nullable = nullable, .plain = plain},
                kept);
}

Expr Regexes::And(absl::Span<const Expr> given) {
  std::vector<Expr> flat = Flatten(Kind::kAnd, given);
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  ByteSet bytes = ByteSet::All();
  bool has_bytes = false, nullable = true;
  std::vector<Expr> kept;
  for (const Expr part : flat) {
    if (part == kNothing) return kNothing;
    if (part == kAnything) continue;
    nullable = nullable && nodes_[part].nullable;
    if (nodes_[part].kind == Kind::kBytes) {
      bytes = bytes & sets_[nodes_[part].first];
      has_bytes = true;
    } else {
      kept.push_back(part);
    }
  }
  if (has_bytes) {
    const Expr one = Bytes(bytes);
    if (one == kNothing) return kNothing;
    kept.push_back(one);
    std::sort(kept.begin(), kept.end());
  }
  if (Contains(kept, kEmpty)) return nullable ? kEmpty : kNothing;
  for (const Expr part : kept) {
    if (nodes_[part].kind == Kind::kNot &&
        Contains(kept, nodes_[part].first)) {
      return kNothing;
    }
  }
  if (kept.empty()) return kAnything;
  if (kept.size() == 1) return kept[0];
  return Intern({.kind = Kind::kAnd, .nullable = nullable, .plain = false},
                kept);
}

Expr Regexes::Not(Expr part) {
  if (nodes_[part].kind == Kind::kNot) return nodes_[part].first;
  return Intern({.kind = Kind::kNot,
                 .nullable = !nodes_[part].nullable,
                 .plain = part == kNothing,
                 .first = part});
}

Expr Regexes::Repeat(Expr part, int32_t min, int32_t max) {
  if (max == 0 || part == kEmpty) return kEmpty;
  if (part == kNothing) return min == 0 ? kEmpty : kNothing;
  if (nodes_[part].nullable) min = 0;  // fewer are as good
  if (min == 1 && max == 1) return part;
  if (part == kAnything) return kAnything;
  const Node& node = nodes_[part];
  if (node.kind == Kind::kRepeat && node.min == 0 && node.max == kUnbounded) {
    return part;
  }
  if (min == 0 && max == 1) return Optional(part);
  if (min == 0 && max == kUnbounded && node.kind == Kind::kBytes &&
      sets_[node.first] == ByteSet::All()) {
    return kAnything;
  }
  return Intern({.kind = Kind::kRepeat,
                 .nullable = min == 0,
                 .plain = node.plain,
                 .first = part,
                 .min = min,
                 .max = max});
}

Expr Regexes::MultipleOf(int64_t divisor, int32_t scale) {
  return InternMultiple({.divisor = divisor, .scale = scale});
}

Expr Regexes::InternMultiple(const Multiple& state) {
  const auto [found, fresh] =
      multiple_index_.try_emplace(state, static_cast<int32_t>(multiples_.size()));
  if (fresh) {
    multiples_.push_back(state);
    Charge(kNodeBytes);
  }
  // The value is remainder / 10^scale more than a multiple.
  const bool divides =
      static_cast<__int128>(state.remainder) * PowerOfTen(state.scale) %
          state.divisor ==
      0;
  return Intern({.kind = Kind::kMultiple,
                 .nullable = state.digit && divides,
                 .plain = false,
                 .first = found->second});
}

Expr Regexes::MultipleDerivative(Multiple state, uint8_t byte) {
  if (byte == '-' && !state.begun) {
    state.begun = true;
    return InternMultiple(state);
  }
  if (byte == '.' && state.digit && !state.point) {
    state.point = true;
    return InternMultiple(state);
  }
  if (byte < '0' || byte > '9') return kNothing;
  const int digit = byte - '0';
  state.begun = state.digit = true;
  if (state.point && state.scale == 0) {
    // Multiples have no more digits than the divisor.
    return digit == 0 ? InternMultiple(state) : kNothing;
  }
  if (state.point) --state.scale;
  state.remainder = static_cast<int64_t>(
      (static_cast<__int128>(state.remainder) * 10 + digit) % state.divisor);
  return InternMultiple(state);
}

Expr Regexes::Derivative(Expr expr, uint8_t byte) {
  const Node& node = nodes_[expr];
  switch (node.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return kNothing;
    case Kind::kBytes:
      return sets_[node.first].Contains(byte) ? kEmpty : kNothing;
    case Kind::kMultiple:
      return MultipleDerivative(multiples_[node.first], byte);
    default:
      break;
  }
  if (expr == kAnything) return kAnything;
  if (node.kind == Kind::kConcat && nodes_[node.first].kind == Kind::kBytes) {
    return sets_[nodes_[node.first].first].Contains(byte) ? node.second
                                                          : kNothing;
  }
  const uint64_t key = static_cast<uint64_t>(expr) << 8 | byte;
  const auto found = derivatives_.find(key);
  if (found != derivatives_.end()) return found->second;
  const Expr derivative = NewDerivative(expr, byte);
  if (!exhausted_) {
    derivatives_.emplace(key, derivative);
    Charge(kDerivativeBytes);
  }
  return derivative;
}

// Nodes are copied here: interning moves them.
Expr Regexes::NewDerivative(Expr expr, uint8_t byte) {
  const Node node = nodes_[expr];
  switch (node.kind) {
    case Kind::kConcat: {
      // A loop along the tails: a chain of optional parts may be long.
      std::vector<Expr> alternatives;
      Expr rest = expr;
      while (nodes_[rest].kind == Kind::kConcat) {
        // A chain that may be left anywhere has as many chains as derivatives.
        if (alternatives.size() >= kFreeSteps) Charge(kStepBytes);
        if (exhausted_) return kNothing;
        const Node step = nodes_[rest];
        alternatives.push_back(
            Concat(Derivative(step.first, byte), step.second));
        rest = nodes_[step.first].nullable ? step.second : kNothing;
      }
      alternatives.push_back(Derivative(rest, byte));
      return Or(alternatives);
    }
    case Kind::kOr:
    case Kind::kAnd: {
      const auto view = parts(node);
      const std::vector<Expr> old(view.begin(), view.end());
      std::vector<Expr> derived;
      derived.reserve(old.size());
      for (const Expr part : old) {
        const Expr derivative = Derivative(part, byte);
        if (node.kind == Kind::kAnd && derivative == kNothing) return kNothing;
        if (derivative != kNothing) derived.push_back(derivative);
      }
      return node.kind == Kind::kOr ? Or(derived) : And(derived);
    }
    case Kind::kNot: {
      const Expr derivative = Derivative(node.first, byte);
      return exhausted_ ? kNothing : Not(derivative);
    }
    case Kind::kRepeat: {
      const Expr derivative = Derivative(node.first, byte);
      if (derivative == kNothing) return kNothing;
      return Concat(
          derivative,
          Repeat(node.first, std::max(node.min - 1, 0),
                 node.max == kUnbounded ? kUnbounded : node.max - 1));
    }
    default:
      return kNothing;
  }
}

absl::StatusOr<bool> Regexes::MatchesNothing(Expr expr, int max_states) {
  // A loop along the tails: a text may be long.
  while (nodes_[expr].kind == Kind::kConcat && !nodes_[expr].plain) {
    auto head = MatchesNothing(nodes_[expr].first, max_states);
    if (!head.ok() || *head) return head;
    expr = nodes_[expr].second;
  }
  const Node node = nodes_[expr];
  if (node.plain || node.nullable) return expr == kNothing;
  if (node.kind == Kind::kRepeat) return MatchesNothing(node.first, max_states);
  const auto known = matches_nothing_.find(expr);
  if (known != matches_nothing_.end()) return known->second;
  if (tries_.empty() || tried_sets_ != sets_.size() ||
      tried_multiples_ != !multiples_.empty()) {
    tries_ = Classes().representative;
    tried_sets_ = sets_.size();
    tried_multiples_ = !multiples_.empty();
  }
  // Breadth first: texts are tried from the shortest on.
  absl::flat_hash_map<Expr, Expr> seen = {{expr, kNothing}};  // from where
  std::deque<Expr> open = {expr};
  while (!open.empty()) {
    const Expr from = open.front();
    open.pop_front();
    for (const uint8_t byte : tries_) {
      const Expr to = Derivative(from, byte);
      if (exhausted_) return status();
      if (to == kNothing) continue;
      const auto end = matches_nothing_.find(to);
      const bool hopeless = end != matches_nothing_.end() && end->second;
      if (hopeless) continue;
      if (nodes_[to].plain || nodes_[to].nullable ||
          end != matches_nothing_.end()) {
        // So does all that led here.
        for (Expr step = from; step != kNothing; step = seen.at(step)) {
          matches_nothing_[step] = false;
        }
        return false;
      }
      if (!seen.emplace(to, from).second) continue;
      if (static_cast<int>(seen.size()) > max_states) {
        return absl::ResourceExhaustedError(
            "the expression has too many states to tell whether it matches "
            "anything");
      }
      open.push_back(to);
    }
  }
  for (const auto& [dead, from] : seen) matches_nothing_[dead] = true;
  return true;
}

int32_t Regexes::AnyRun(Expr expr, const CharacterTest& any) const {
  const Node& node = nodes_[expr];
  // Others may have no end, whatever they begin with.
  if (!node.plain) return 0;
  switch (node.kind) {
    case Kind::kConcat:
      return AnyRun(node.first, any);
    case Kind::kRepeat:
      return !any(node.first)         ? 0
             : node.max == kUnbounded ? kEndless
                                      : node.max;
    case Kind::kOr: {
      int32_t longest = 0;
      for (const Expr part : parts(node)) {
        longest = std::max(longest, AnyRun(part, any));
      }
      return longest;
    }
    default:
      return expr == kAnything ? kEndless : 0;
  }
}

Regexes::ByteClasses Regexes::Classes() const {
  ByteClasses classes;
  std::array<int, 256> class_of = {};
  int count = 1;
  const auto split = [&](const ByteSet& set) {
    std::array<int, 256> inside;
    inside.fill(-1);
    std::array<bool, 256> outside = {};
    for (int byte = 0; byte < 256; ++byte) {
      if (!set.Contains(byte)) outside[class_of[byte]] = true;
    }
    for (int byte = 0; byte < 256; ++byte) {
      const int old = class_of[byte];
      if (!set.Contains(byte) || !outside[old]) continue;
      if (inside[old] < 0) inside[old] = count++;
      class_of[byte] = inside[old];
    }
  };
  for (const ByteSet& set : sets_) {
    if (count == 256) break;
    split(set);
  }
  if (!multiples_.empty()) {
    for (const char c : absl::string_view("-.0123456789")) {
      split(ByteSet::Range(c, c));
    }
  }
  classes.representative.resize(count);
  for (int byte = 255; byte >= 0; --byte) {
    classes.class_of[byte] = static_cast<uint8_t>(class_of[byte]);
    classes.representative[class_of[byte]] = static_cast<uint8_t>(byte);
  }
  return classes;
}

}  // namespace foretoken::grammar
