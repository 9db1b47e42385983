// From a constraint to its grammar.
#ifndef FORETOKEN_COMMON_GRAMMAR_COMPILE_H_
#define FORETOKEN_COMMON_GRAMMAR_COMPILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/grammar/constraint.h"
#include "common/grammar/grammar.h"

namespace foretoken::grammar {

struct CompileLimits {
  int64_t source_bytes = 1 << 20;
  int64_t choices = 10'000;
  GrammarLimits grammar;
};

// InvalidArgument: the source is wrong, or no text satisfies it.
// Unimplemented: something in it is not supported, by name and place.
// ResourceExhausted: it exceeds a limit. `constraint` must not be empty.
absl::StatusOr<std::shared_ptr<const Grammar>> Compile(
    const Constraint& constraint, const CompileLimits& limits = {});

// Identifies the constraint for caches: equal constraints have equal keys.
std::string ConstraintKey(const Constraint& constraint);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_COMPILE_H_
