// Requests of an orchestrator to a verifier, and their results: plain structs,
// the same in one process and over gRPC.
//
// A session is a growing text: the prompt, then one token from prefill, then
// the tokens of its rounds. Its length counts committed tokens and the prompt.
// Row 0 of a round is the last committed token, row i + 1 is node i.
#ifndef FORETOKEN_COMMON_SPECULATION_ROUND_H_
#define FORETOKEN_COMMON_SPECULATION_ROUND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/pooling.h"
#include "common/base/types.h"
#include "common/grammar/constraint.h"
#include "common/sampling/sampler.h"
#include "common/speculation/draft_arm.h"
#include "common/speculation/token_tree.h"

namespace foretoken {

namespace grammar {
struct Grammar;
}  // namespace grammar

enum class FinishReason {
  kNone,    // not finished
  kStop,    // an end token, a stop token id or a stop string
  kLength,  // max_tokens, or the model's limit
};

inline constexpr int32_t kMaxRowCandidates = 8;
inline constexpr size_t kMaxCallerBytes = 256;
// Backends use a few hundred bytes.
inline constexpr size_t kMaxFingerprintBytes = 1024;
inline constexpr double kMinCallerWeight = 0.01;
inline constexpr double kMaxCallerWeight = 100;

// The fields of a request for output (generation.h) that the verifier gets as
// well.
struct SessionTerms {
  // Bounds every sharing of text, prefix pages among it; empty: this request
  // alone.
  std::string cache_scope;
  SamplingParams sampling;
  // Applies to the whole output, the part that is replayed included; empty:
  // none.
  Constraint constraint;
  std::string request_id;   // for logs
  std::string traceparent;  // W3C header of the caller's span; empty: none
  absl::Time deadline = absl::InfiniteFuture();
};

// Its `sampling` has the final seed. Its cache_scope bounds prefix pages alone:
// it may be a scope of nothing else (GenerationRequest::scope_of_pages).
struct SessionRequest : SessionTerms {
  // The prompt (BOS included); on a replay, followed by the output so far.
  std::vector<TokenId> tokens;
  int64_t prompt_length = 0;  // of `tokens`, at least 1
  // Maximum of prompt and output together.
  int64_t max_length = 0;
  // The session ends when one of these is committed.
  std::vector<TokenId> stop_tokens;
  // `constraint` as it was compiled, if there is one; each process compiles it.
  std::shared_ptr<const grammar::Grammar> grammar;
  // Rounds must report RoundResult::row_tokens; otherwise it may be empty.
  bool want_row_tokens = false;
  // Numerics that produced the text so far; empty: any.
  std::string numerics_fingerprint;
  // The caller: callers share the verifier by weight.
  std::string caller;
  double weight = 1;  // kMinCallerWeight..kMaxCallerWeight
  // Other than kNone: the session reads its prompt, whose embedding is its only
  // answer. It has no output, constraint or replay, and shares no prefix pages;
  // max_length is not read.
  Pooling pooling = Pooling::kNone;
};

// The end of prefill. A session that was opened as a replay (with tokens beyond
// the prompt) gets no token here: its next round continues the output.
struct PrefillResult {
  int64_t length = 0;                // committed, the new token included
  std::vector<SampledToken> tokens;  // one, or none on a replay
  int64_t reused_tokens = 0;         // from the prefix cache
  FinishReason finish = FinishReason::kNone;
  DraftArm arm = DraftArm::kNone;  // that the verifier announces
  // [d_model], of length 1, of a session with a pooling: then there is no
  // token, and the session has finished (kStop).
  std::vector<float> embedding;
};

struct RoundRequest {
  // Committed tokens that the tree builds on: must be the session's length.
  int64_t length = 0;
  TokenTree tree;  // draft nodes and probes; may be empty: plain decoding
  // Likeliest tokens by raw logits to report for every row, up to
  // kMaxRowCandidates.
  int32_t candidates = 0;
  DraftArm arm = DraftArm::kNone;  // that it was drafted under
};

// Statistics of a round, in rows of its own session.
struct RoundStats {
  int32_t draft_rows = 0;  // of the tree, without dropped nodes
  int32_t probe_rows = 0;
  int32_t dropped_nodes = 0;  // past a limit or outside the vocabulary
  int32_t accepted = 0;       // draft tokens committed
  int32_t pass_rows = 0;      // of the pass, all sessions together
  int32_t pass_sessions = 0;
  absl::Duration queue_time;  // from the request to its pass
  absl::Duration pass_time;
};

struct RoundResult {
  int64_t length = 0;  // after the round
  // Committed: the accepted path, then the bonus token. tokens[i] is node
  // path[i] for i < path.size(); where a limit or a stop token cut the path,
  // the last token kept counts as the bonus.
  std::vector<SampledToken> tokens;
  std::vector<int32_t> path;
  // The target's token after every row, [tree.size() + 1]; -1 for dropped
  // nodes.
  std::vector<TokenId> row_tokens;
  // The likeliest tokens after every row, if asked for, best first; their
  // logprobs up to a constant of the row.
  std::vector<std::vector<TokenLogprob>> row_candidates;
  FinishReason finish = FinishReason::kNone;
  DraftArm arm = DraftArm::kNone;  // for the next round
  RoundStats stats;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_ROUND_H_
