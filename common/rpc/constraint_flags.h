// The flags for constraints of requests, the same for all services that compile
// them.
#ifndef FORETOKEN_COMMON_RPC_CONSTRAINT_FLAGS_H_
#define FORETOKEN_COMMON_RPC_CONSTRAINT_FLAGS_H_

#include "common/config/flags.h"
#include "common/grammar/grammar_cache.h"

namespace foretoken::rpc {

// --max-constraint-bytes --grammar-cache-bytes. `options` must outlive `flags`.
void AddConstraintFlags(Flags& flags, grammar::GrammarCacheOptions* options);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_CONSTRAINT_FLAGS_H_
