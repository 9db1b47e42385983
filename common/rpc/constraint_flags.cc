#include "common/rpc/constraint_flags.h"

namespace foretoken::rpc {

void AddConstraintFlags(Flags& flags, grammar::GrammarCacheOptions* options) {
  flags.Int64("max-constraint-bytes", &options->max_constraint_bytes,
              {1, int64_t{10} << 20},
              "Maximum size of a request's constraint (a JSON schema, regular "
              "expression, grammar, or all choices together)");
  flags.Int64("grammar-cache-bytes", &options->cache_bytes,
              {0, int64_t{1} << 40},
              "Memory for the compiled grammars of constraints; a caller has "
              "half of it at most. A verifier takes up to eight times as much "
              "for the states and masks of running requests");
}

}  // namespace foretoken::rpc
