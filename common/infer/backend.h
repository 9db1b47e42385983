// Backend: one target or draft model, its KV cache, and forward passes over
// rows of many sessions.
//
// There is one primitive: rows with parent rows and a token back for each.
// Prefill is a chain of rows, decoding one row, verification a token tree, a
// lookahead window a forest; a pass may hold all of them at once. What a row
// computes depends on the tokens of its own path only (committed context, then
// its ancestors), to the bit.
//
//   Open -> (Forward -> Commit)* -> Close
//
// Owned by one thread (the engine thread), which makes every call.
#ifndef FORETOKEN_COMMON_INFER_BACKEND_H_
#define FORETOKEN_COMMON_INFER_BACKEND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/infer/model_config.h"
#include "common/sampling/sampler.h"

namespace foretoken {

using SessionId = int64_t;

class KvCache;

// Type that weights and GEMM inputs are rounded to, and KV unless it has a type
// of its own; the rest is fp32. fp32 is the oracle, bf16 the default.
enum class Precision { kFloat32, kBFloat16 };

// Which rows of a PassSession get a token (and logits); the others cost no
// product with the vocabulary.
enum class RowOutputs { kNone, kLastRow, kAllRows, kListedRows };

// The masks of a session's output rows. They are made when they are asked for,
// so that a device computes the pass meanwhile.
class AllowedTokens {
 public:
  virtual ~AllowedTokens() = default;

  // For every output row a bit for each token that it may draw (see
  // SamplingState::Sample), or nullptr: any; empty: any for all rows. Called at
  // most once a pass, on the thread that called Forward and before a row is
  // drawn; valid until Forward returns.
  virtual absl::Span<const uint64_t* const> Make() = 0;
};

// One session's share of a pass. Spans are borrowed for the call.
struct PassSession {
  SessionId session = -1;
  absl::Span<const TokenId> tokens;   // [rows], at least one
  absl::Span<const int32_t> parents;  // [rows], topological; kRootParent hangs
                                      // on the committed context
  RowOutputs outputs = RowOutputs::kAllRows;
  absl::Span<const int32_t> output_rows;  // kListedRows: ascending, each once
  // Draws the tokens; nullptr is plain arg max. Its length() must be the
  // session's committed length: rows' paths are added to it.
  const SamplingState* sampling = nullptr;
  // nullptr: any token for all rows. Only with `sampling`.
  AllowedTokens* allowed = nullptr;
};

// outputs[s]: the model's tokens after the output rows of session s, by row:
// none for kNone, one for kLastRow, [rows] for kAllRows, [output_rows] for
// kListedRows. A row's token does not depend on which others are asked for.
struct PassResult {
  std::vector<std::vector<SampledToken>> outputs;
};

struct OpenedSession {
  SessionId session = -1;
  int64_t reused_tokens = 0;  // already committed from the prefix cache
};

struct KvUsage {
  int64_t pages_total = 0;
  int64_t pages_free = 0;    // unused or evictable at once
  int64_t pages_cached = 0;  // of those, held for prefix reuse
  int64_t sessions = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const ModelConfig& config() const = 0;

  // Everything that may change a bit of output: weights hash, precision,
  // backend, ISA path, kernel version, block sizes. Not the thread count.
  virtual std::string numerics_fingerprint() const = 0;

  // A new session. Tokens of `prompt` that the prefix cache holds for
  // `cache_scope` are committed at once (whole pages, and never all of
  // `prompt`: at least its last token is left to compute). An empty scope
  // shares nothing. ResourceExhausted over the session limit.
  virtual absl::StatusOr<OpenedSession> Open(
      absl::string_view cache_scope, absl::Span<const TokenId> prompt) = 0;

  // Frees the session; its full pages stay cached for its scope until memory
  // is needed. NotFound for an unknown session (also below).
  virtual absl::Status Close(SessionId session) = 0;

  // Tokens whose KV is committed.
  virtual absl::StatusOr<int64_t> CommittedLength(SessionId session) const = 0;

  // Makes sure that the session can grow to `length` committed tokens.
  // ResourceExhausted, with nothing changed, if pages are short.
  virtual absl::Status Reserve(SessionId session, int64_t length) = 0;

  // Drops the tokens from position `length` on, and the uncommitted rows of the
  // last pass. Pages after `length`, reserved ones included, are given back.
  // InvalidArgument if fewer tokens are committed. The page that `length` cuts
  // is copied if the prefix cache shares it: ResourceExhausted, with nothing
  // changed, if there is no page for the copy.
  virtual absl::Status Truncate(SessionId session, int64_t length) = 0;

  // Runs all rows in one pass. InvalidArgument names session and row for a
  // token outside the vocabulary, a parent out of order, a position past the
  // model's limit, more rows than max_rows(), output_rows out of order.
  // DataLoss names both where every logit of an output row is NaN. Uncommitted
  // rows of the pass before are dropped.
  virtual absl::Status Forward(absl::Span<const PassSession> pass,
                               PassResult& result) = 0;

  // Appends rows of the session's last pass to its context, KV bit for bit:
  // `rows` is a path that starts at a child of the context. The others are
  // dropped. May be called once per session and pass.
  virtual absl::Status Commit(SessionId session,
                              absl::Span<const int32_t> rows) = 0;

  // Logits of an output row of the last pass, fp32, [vocab_size]; valid until
  // the next call. For tests and tools: the serving path samples inside.
  virtual absl::StatusOr<absl::Span<const float>> Logits(SessionId session,
                                                         int32_t row) = 0;

  // Final hidden states of rows `first`..`first + count - 1` of the session's
  // last pass: after the final norm, before the LM head rounds them, fp32,
  // [count, d_model], row-major; `states` has exactly that size. Outputs need
  // not have been asked for. Between that pass and the next; committing does
  // not change them. FailedPrecondition if the session was not in it,
  // InvalidArgument for rows that it did not have or another size,
  // Unimplemented where a backend keeps no states.
  virtual absl::Status States(SessionId session, int32_t first, int32_t count,
                              absl::Span<float> states);

  // False for an id that this backend never draws, because its LM head leaves
  // it out: its logit is -infinity. Only a draft model's does.
  virtual bool Draws(TokenId /*token*/) const { return true; }

  virtual int32_t max_rows() const = 0;  // of one pass, all sessions together

  // True once the device has failed for good: Forward returns Unavailable until
  // the process is started anew.
  virtual bool lost() const { return false; }

  // Bytes of weights that every pass reads: over the memory's bandwidth, the
  // floor of its time. 0 if unknown.
  virtual int64_t weight_bytes_per_pass() const { return 0; }

  // Bytes of K and V of one committed token, all layers: a row reads those of
  // its whole context. 0 if unknown.
  virtual int64_t kv_bytes_per_token() const { return 0; }

  // Bytes a second of a large copy within the memory that holds the weights,
  // read and write counted: the yardstick of a pass on a device. 0 if unknown.
  virtual absl::StatusOr<double> MeasureCopyBandwidth() { return 0.0; }

  // Seconds that the matrix products of one row take, logits included, at the
  // peak of the processor's multiply-add instructions as measured now: times
  // the rows, another floor of a pass. 0 if unknown.
  virtual double MeasureProductSeconds() { return 0.0; }

  // Which session's KV lies in which page.
  virtual const KvCache& kv_cache() const = 0;
  KvUsage kv_usage() const;  // kv_cache's
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_BACKEND_H_
