// One request for output and what it gives, as plain structs: the same in one
// process, behind gRPC (generation.proto) and behind HTTP.
#ifndef FORETOKEN_COMMON_GENERATION_GENERATION_H_
#define FORETOKEN_COMMON_GENERATION_GENERATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/pooling.h"
#include "common/base/types.h"
#include "common/grammar/constraint.h"
#include "common/sampling/sampler.h"
#include "common/sampling/sampling_params.h"
#include "common/speculation/draft_tree.h"
#include "common/speculation/drafter_id.h"
#include "common/speculation/modes.h"
#include "common/speculation/round.h"

namespace foretoken {

inline constexpr size_t kMaxRequestIdBytes = 64;
inline constexpr size_t kMaxCacheScopeBytes = 256;

// OK for an id that logs can show: empty, or at most kMaxRequestIdBytes
// characters of A-Za-z0-9._-; else InvalidArgument, without repeating it.
absl::Status CheckRequestId(absl::string_view request_id);
// OK for at most kMaxCacheScopeBytes bytes. Errors name `field`.
absl::Status CheckCacheScope(absl::string_view cache_scope,
                             absl::string_view field = "cache_scope");

// The caller of a request. Callers share a busy server by weight.
struct Caller {
  std::string name;  // equal for all that share one account; may be empty
  bool authenticated = false;  // the name is proven, by token or certificate
  bool named = false;          // the name stands in the token file
  double weight = 1;
  int32_t max_requests = 0;         // running at once; 0: the service's limit
  int64_t requests_per_minute = 0;  // 0: no limit
  int64_t tokens_per_minute = 0;    // prompt and output; 0: no limit
};

// Its sampling.end_tokens are filled in from the fields below, and a request_id
// that is empty is drawn.
struct GenerationRequest : SessionTerms {
  Caller caller;
  // Encoded with the tokenizer, BOS included where the model's files ask for
  // it; unset: `prompt` is taken as it is.
  std::optional<std::string> text;
  std::vector<TokenId> prompt;  // BOS included, if it has one
  bool has_seed = true;  // false: a seed is drawn, and sampling.seed not used
  std::optional<Mode> mode;               // unset: the service's default
  std::optional<int32_t> max_tree_nodes;  // unset: the service's limit
  int64_t max_tokens = 128;
  std::vector<TokenId> stop_token_ids;
  std::vector<std::string> stop_strings;
  bool ignore_eos = false;  // the model's end tokens are tokens like any other
  // Without a cache_scope, the scope within which prefix pages are shared, and
  // nothing else: no history, no phrases. Empty: not even they.
  std::string prefix_scope;
  // Fingerprint of the model that must serve it; empty: whichever is active.
  std::string numerics_fingerprint;
  bool want_round_trees = false;  // see GenerationDelta::round_tree
  // Other than kNone: the result is the prompt's embedding. There is no output,
  // and what describes it (sampling, mode, stops, constraint, max_tokens) is
  // not read; nor are scopes: no prefix pages are shared.
  Pooling pooling = Pooling::kNone;

  // The scope of prefix pages; empty: they are not shared.
  const std::string& scope_of_pages() const {
    return cache_scope.empty() ? prefix_scope : cache_scope;
  }
};

// Everything needed to reproduce the output, and the request's name in logs.
struct GenerationStart {
  std::string numerics_fingerprint;
  uint64_t seed = 0;
  std::string request_id;
};

// The draft of one round and its outcome. The output is the token of
// prefill and then every round's committed tokens, whenever they are shown;
// after a stop string the last of them are not.
struct RoundTree {
  // At most max_tree_nodes, with the estimates from before the round; `parts`
  // is each node's likeliest proposer, of a fused tree its part. Nodes that are
  // read but never accepted are left out.
  DraftTree nodes;
  std::vector<bool> accepted;  // [nodes.size()]
  // The accepted nodes' tokens, then the target's own.
  std::vector<TokenId> committed;
};

// Output that is final and may be shown.
struct GenerationDelta {
  std::optional<GenerationStart> start;  // in the first alone
  std::string text;
  std::vector<TokenId> token_ids;
  // Drafter of each token (of a fused tree, its part); kTarget: bonus token.
  std::vector<DrafterId> drafters;
  // Per token, if logprobs were asked for.
  std::vector<SampledToken> logprobs;
  // The tree of the round that ended, if asked for; unset for prefill.
  std::optional<RoundTree> round_tree;

  bool empty() const {
    return !start.has_value() && text.empty() && token_ids.empty() &&
           !round_tree.has_value();
  }
};

struct DrafterCounts {
  DrafterId id = DrafterId::kFused;
  int64_t drafted = 0;
  int64_t accepted = 0;
  int64_t rounds = 0;     // in which it had an answer in time
  int64_t degraded = 0;   // in which it was wanted and had none
  int64_t shortened = 0;  // drafts late, or cut off before their mode was done
};

struct GenerationSummary {
  std::string request_id;
  std::string mode;  // with the parameters that were given
  uint64_t seed = 0;
  std::vector<TokenId> prompt;  // as it was used; empty with an embedding
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;  // that ended the output; empty: none did
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;  // shown, the end token included
  int64_t reused_tokens = 0;      // of the prompt, from the prefix cache
  int64_t rounds = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  std::vector<DrafterCounts> by_drafter;
  absl::Duration time_to_first_token;
  absl::Duration decode_time;  // from the first token to the last
  int64_t decoded_tokens = 0;  // in that time
  absl::Duration draft_time;   // waiting for drafts and merging them
  absl::Duration verify_time;
  absl::Duration total_time;  // from the request's arrival
  // [GeneratorInfo::embedding_size], of length 1; empty for a request without
  // a pooling.
  std::vector<float> embedding;

  // Tokens per round; 1 where there was none.
  double accept_length() const {
    return rounds == 0 ? 1.0 : 1.0 + static_cast<double>(accepted) / rounds;
  }
  double tokens_per_second() const {
    const double seconds = absl::ToDoubleSeconds(decode_time);
    return seconds > 0 ? static_cast<double>(decoded_tokens) / seconds : 0.0;
  }
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_GENERATION_GENERATION_H_
