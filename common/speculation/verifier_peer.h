// VerifierPeer: one verifier of a pool, in this process or behind a network:
// its sessions and its description.
#ifndef FORETOKEN_COMMON_SPECULATION_VERIFIER_PEER_H_
#define FORETOKEN_COMMON_SPECULATION_VERIFIER_PEER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/pooling.h"
#include "common/base/types.h"
#include "common/speculation/verify_session.h"

namespace foretoken {

struct VerifierInfo {
  std::string numerics_fingerprint;
  int32_t vocab_size = 0;
  int32_t max_positions = 0;
  int32_t max_tree_nodes = 0;
  int32_t max_rows_per_session = 0;
  int32_t sessions = 0;
  int64_t kv_pages_total = 0;
  int64_t kv_pages_free = 0;
  // Measured cost of a pass, (rows, milliseconds).
  std::vector<std::pair<int32_t, double>> pass_costs;
  std::string model;
  std::string tokenizer_fingerprint;  // raw; empty: it has no tokenizer
  std::vector<TokenId> end_tokens;    // of the model's own configuration
  std::optional<int64_t> passes;      // ended since the start, if it tells them
  // A session that has waited this long without the end of a pass was left.
  absl::Duration silence_limit;
  int32_t grammar_version = 0;  // kGrammarVersion; 0: it knows no constraints
  int32_t embedding_size = 0;   // numbers of an embedding; 0: it makes none
  // Where a request names none: kMean or kLast; kNone: a request must.
  Pooling model_pooling = Pooling::kNone;
};

// Thread-safe.
class VerifierPeer : public VerifySessions {
 public:
  using OnInfo = std::function<void(absl::StatusOr<VerifierInfo>)>;

  // Returns at once. `done` runs once, by `deadline`, on any thread, maybe
  // before this returns. Unavailable while draining.
  virtual void GetInfo(absl::Time deadline, OnInfo done) = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_VERIFIER_PEER_H_
