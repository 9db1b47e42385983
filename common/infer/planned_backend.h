// PlannedBackend: the part of a backend that does not depend on where the model
// runs. Keeps sessions, KV pages and their prefix reuse (KvCache), checks and
// plans every pass (PassPlan) and every commit. A subclass runs planned passes
// and copies KV.
//
// Owned by one thread (the engine thread).
#ifndef FORETOKEN_COMMON_INFER_PLANNED_BACKEND_H_
#define FORETOKEN_COMMON_INFER_PLANNED_BACKEND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/infer/backend.h"
#include "common/infer/kv_cache.h"
#include "common/infer/model_config.h"
#include "common/infer/pass_plan.h"

namespace foretoken {

struct PlannedOptions {
  // Memory for committed KV, in bytes of pages: at least one page. 0: the
  // backend's choice.
  int64_t kv_cache_bytes = 0;
  // Tokens of one session that the backend's choice must hold; 0: any number.
  int64_t kv_cache_tokens = 0;
  int32_t max_rows = 512;      // per pass, 1..kMaxRows
  int32_t max_sessions = 256;  // that hold KV at once
  bool prefix_reuse = true;

  static constexpr int32_t kMaxRows = 16384;

  // InvalidArgument names `backend` and the bad option.
  absl::Status Check(absl::string_view backend) const;
};

class PlannedBackend : public Backend {
 public:
  const ModelConfig& config() const final { return config_; }
  std::string numerics_fingerprint() const final { return fingerprint_; }
  int32_t max_rows() const final { return max_rows_; }
  const KvCache& kv_cache() const final { return cache_; }

  absl::StatusOr<OpenedSession> Open(absl::string_view cache_scope,
                                     absl::Span<const TokenId> prompt) final;
  absl::Status Close(SessionId session) final;
  absl::StatusOr<int64_t> CommittedLength(SessionId session) const final;
  absl::Status Reserve(SessionId session, int64_t length) final;
  absl::Status Truncate(SessionId session, int64_t length) final;
  absl::Status Forward(absl::Span<const PassSession> pass,
                       PassResult& result) final;
  absl::Status Commit(SessionId session, absl::Span<const int32_t> rows) final;
  absl::StatusOr<absl::Span<const float>> Logits(SessionId session,
                                                 int32_t row) final;
  absl::Status States(SessionId session, int32_t first, int32_t count,
                      absl::Span<float> states) final;

 protected:
  // `options` have passed Check; `pages` is at least 1.
  PlannedBackend(const ModelConfig& config, std::string fingerprint,
                 const PlannedOptions& options, int64_t pages);

  // Runs plan(), which was built from `pass`, and draws the tokens into
  // `outputs`, which has its final shape. The KV of the rows stays in scratch.
  virtual absl::Status RunPlan(
      absl::Span<const PassSession> pass,
      std::vector<std::vector<SampledToken>>& outputs) = 0;

  // Copies the KV of `rows`, a path through the plan's session `index`, to the
  // positions after its committed ones. `pages` is the session's page table.
  virtual absl::Status CommitRows(int32_t index, absl::Span<const int32_t> rows,
                                  absl::Span<const int32_t> pages) = 0;

  // Copies the KV of the first `tokens` of page `from` to page `to`.
  virtual absl::Status CopyPage(int32_t from, int32_t to, int32_t tokens) = 0;

  // Logits of plan().output_rows[output]; valid until the next call.
  virtual absl::StatusOr<absl::Span<const float>> OutputLogits(
      int32_t output) = 0;

  // Writes the final hidden states of `count` rows of the plan, from the global
  // row `first` on, to `states`, [count, d_model].
  virtual absl::Status RowStates(int32_t first, int32_t count,
                                 float* states) = 0;

  // Makes the masks of the pass: before any MaskOf, and while a device
  // computes.
  void MakeMasks(absl::Span<const PassSession> pass);
  // The mask of an output row of session `index` of the pass; nullptr: none.
  const uint64_t* MaskOf(size_t index, int64_t output) const {
    return masks_[index].empty() ? nullptr : masks_[index][output];
  }

  const PassPlan& plan() const { return plan_; }
  const KvCache& cache() const { return cache_; }

  // DataLoss: every logit of `row`, a global row of the plan, is NaN.
  absl::Status NoNumbers(int32_t row) const;

 private:
  struct LastPass {
    int32_t index = 0;  // into plan_.sessions
    bool committed = false;
  };

  const ModelConfig config_;
  const std::string fingerprint_;
  const int32_t max_rows_;
  KvCache cache_;
  PassPlan plan_;
  std::vector<absl::Span<const uint64_t* const>> masks_;  // by session
  absl::flat_hash_map<SessionId, LastPass> last_pass_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_PLANNED_BACKEND_H_
