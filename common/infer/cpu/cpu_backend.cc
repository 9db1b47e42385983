#include "common/infer/cpu/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/infer/cpu/cpu_forward.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/cpu/cpu_model.h"
#include "common/infer/cpu/kv_store.h"
#include "common/infer/cpu/ops_probe.h"
#include "common/infer/kv_cache.h"
#include "common/infer/numerics.h"
#include "common/infer/pass_paths.h"
#include "common/infer/pass_plan.h"
#include "common/sampling/sampler.h"

namespace foretoken {
namespace {

// Raised with every change of the kernels that may change a bit of output.
constexpr int kKernelVersion = 1;

class CpuBackend : public Backend {
 public:
  CpuBackend(CpuModel model, const CpuOps& ops, const CpuOptions& options,
             std::unique_ptr<ThreadPool> pool, KvStore store, int64_t pages)
      : model_(std::move(model)),
        ops_(ops),
        options_(options),
        pool_(std::move(pool)),
        store_(std::move(store)),
        cache_({pages, options.max_sessions, options.prefix_reuse}),
        scratch_(pool_->threads()) {}

  absl::Status Init() {
    FORETOKEN_ASSIGN_OR_RETURN(
        forward_,
        CpuForward::Create(model_, ops_, store_, *pool_, options_.max_rows));
    fingerprint_ = absl::StrFormat(
        "cpu;kernel=%d;isa=%s;precision=%s;block=%d;probe=%s;config=%s;"
        "weights=%s",
        kKernelVersion, ops_.name,
        model_.precision() == Precision::kBFloat16 ? "bf16" : "fp32",
        kAttendKeys, ProbeOps(ops_, model_.config()),
        ShortDigest(NumericConfig(model_.config())), model_.weights_digest());
    return absl::OkStatus();
  }

  const ModelConfig& config() const override { return model_.config(); }
  std::string numerics_fingerprint() const override { return fingerprint_; }
  int32_t max_rows() const override { return options_.max_rows; }
  KvUsage kv_usage() const override { return cache_.usage(); }
  int64_t weight_bytes_per_pass() const override {
    return model_.bytes_per_pass();
  }

  absl::StatusOr<OpenedSession> Open(
      absl::string_view cache_scope,
      absl::Span<const TokenId> prompt) override {
    return cache_.Open(cache_scope, prompt);
  }

  absl::Status Close(SessionId session) override {
    last_pass_.erase(session);
    return cache_.Close(session);
  }

  absl::StatusOr<int64_t> CommittedLength(SessionId session) const override {
    return cache_.CommittedLength(session);
  }

  absl::Status Reserve(SessionId session, int64_t length) override {
    if (length > model_.config().max_positions) {
      return absl::InvalidArgumentError(
          absl::StrFormat("session %d: %d tokens, the model's limit is %d",
                          session, length, model_.config().max_positions));
    }
    return cache_.Reserve(session, length);
  }

  absl::Status Forward(absl::Span<const PassSession> pass,
                       PassResult& result) override;
  absl::Status Commit(SessionId session,
                      absl::Span<const int32_t> rows) override;
  absl::StatusOr<absl::Span<const float>> Logits(SessionId session,
                                                 int32_t row) override;

 private:
  struct LastPass {
    int32_t index = 0;  // into plan_.sessions
    bool committed = false;
  };

  absl::Status Draw(absl::Span<const PassSession> pass, PassResult& result);
  SampledToken DrawOne(const PassSession& source, int32_t row,
                       absl::Span<const float> logits, int thread);

  // Scratch of one thread that draws tokens.
  struct DrawScratch {
    SamplingState::Scratch sampling;
    std::vector<TokenId> path;
  };

  const CpuModel model_;
  const CpuOps& ops_;
  const CpuOptions options_;
  const std::unique_ptr<ThreadPool> pool_;
  KvStore store_;
  KvCache cache_;
  std::unique_ptr<CpuForward> forward_;
  std::string fingerprint_;
  std::vector<DrawScratch> scratch_;
  PassPlan plan_;
  absl::flat_hash_map<SessionId, LastPass> last_pass_;
};

absl::Status CpuBackend::Forward(absl::Span<const PassSession> pass,
                                 PassResult& result) {
  last_pass_.clear();
  result.outputs.clear();
  FORETOKEN_RETURN_IF_ERROR(
      plan_.Build(pass, model_.config(), cache_, options_.max_rows));
  if (plan_.rows.empty()) return absl::OkStatus();
  FORETOKEN_RETURN_IF_ERROR(forward_->Run(plan_));
  FORETOKEN_RETURN_IF_ERROR(Draw(pass, result));
  for (size_t s = 0; s < plan_.sessions.size(); ++s) {
    last_pass_[plan_.sessions[s].id] = {static_cast<int32_t>(s), false};
  }
  return absl::OkStatus();
}

absl::Status CpuBackend::Draw(absl::Span<const PassSession> pass,
                              PassResult& result) {
  std::atomic<int32_t> not_a_number = -1;  // a row without a number
  result.outputs.resize(pass.size());
  for (size_t s = 0; s < pass.size(); ++s) {
    result.outputs[s].resize(plan_.sessions[s].outputs);
  }
  const int64_t total = static_cast<int64_t>(plan_.output_rows.size());
  for (int64_t first = 0; first < total; first += CpuForward::kLogitRows) {
    const int64_t count =
        std::min<int64_t>(CpuForward::kLogitRows, total - first);
    forward_->ComputeLogits(first, count);
    pool_->ParallelForThreads(count, [&](int64_t i, int thread) {
      const int32_t row = plan_.output_rows[first + i];
      const int32_t s = plan_.rows[row].session;
      const int32_t local = row - plan_.sessions[s].first_row;
      const absl::Span<const float> logits = forward_->logits(i);
      SampledToken& drawn =
          result.outputs[s][first + i - plan_.sessions[s].first_output];
      drawn = DrawOne(pass[s], local, logits, thread);
      // NaN is never preferred: where it is drawn there was nothing else.
      if (std::isnan(logits[drawn.token])) {
        not_a_number.store(row, std::memory_order_relaxed);
      }
    });
  }
  const int32_t row = not_a_number.load(std::memory_order_relaxed);
  if (row < 0) return absl::OkStatus();
  result.outputs.clear();
  const PlanSession& session = plan_.sessions[plan_.rows[row].session];
  return absl::DataLossError(
      absl::StrFormat("session %d: the model's logits of row %d are not "
                      "numbers",
                      session.id, row - session.first_row));
}

SampledToken CpuBackend::DrawOne(const PassSession& source, int32_t row,
                                 absl::Span<const float> logits, int thread) {
  if (source.sampling == nullptr) {
    SampledToken token;
    token.token = ops_.arg_max(logits.data(), static_cast<int>(logits.size()));
    return token;
  }
  DrawScratch& scratch = scratch_[thread];
  PathTokens(source, row, scratch.path);
  return source.sampling->Sample(logits, scratch.path, scratch.sampling);
}

absl::Status CpuBackend::Commit(SessionId session,
                                absl::Span<const int32_t> rows) {
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t length,
                             cache_.CommittedLength(session));
  const auto last = last_pass_.find(session);
  if (last == last_pass_.end() || last->second.committed) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "session %d: nothing to commit, %s", session,
        last == last_pass_.end() ? "it was not in the last pass"
                                 : "its rows were committed before"));
  }
  const PlanSession& planned = plan_.sessions[last->second.index];
  FORETOKEN_RETURN_IF_ERROR(CheckPath(plan_, planned, rows));
  FORETOKEN_RETURN_IF_ERROR(
      cache_.Reserve(session, length + static_cast<int64_t>(rows.size())));
  std::vector<int32_t> global;
  std::vector<TokenId> tokens;
  for (const int32_t row : rows) {
    global.push_back(planned.first_row + row);
    tokens.push_back(plan_.rows[global.back()].token);
  }
  store_.Commit(global, length, *cache_.PageTable(session), *pool_);
  last->second.committed = true;
  return cache_.Append(session, tokens);
}

absl::StatusOr<absl::Span<const float>> CpuBackend::Logits(SessionId session,
                                                           int32_t row) {
  const auto last = last_pass_.find(session);
  if (last == last_pass_.end()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "session %d: no logits, it was not in the last pass", session));
  }
  const PlanSession& planned = plan_.sessions[last->second.index];
  const auto found =
      std::find(plan_.output_rows.begin(), plan_.output_rows.end(),
                planned.first_row + row);
  if (row < 0 || row >= planned.rows || found == plan_.output_rows.end()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "session %d: row %d was no output of the last pass", session, row));
  }
  // Computed again: the pass keeps no more than a chunk of logits. By row
  // invariance these are the same.
  forward_->ComputeLogits(found - plan_.output_rows.begin(), 1);
  return forward_->logits(0);
}

absl::Status CheckOptions(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > ThreadPool::kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrFormat("cpu backend: threads %d, want 0..%d", options.threads,
                        ThreadPool::kMaxThreads));
  }
  if (options.max_rows < 1 || options.max_rows > CpuOptions::kMaxRows) {
    return absl::InvalidArgumentError(
        absl::StrFormat("cpu backend: max_rows %d, want 1..%d",
                        options.max_rows, CpuOptions::kMaxRows));
  }
  if (options.max_sessions < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "cpu backend: max_sessions %d, want at least 1", options.max_sessions));
  }
  if (options.kv_cache_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("cpu backend: kv_cache_bytes %d, want at least 0",
                        options.kv_cache_bytes));
  }
  if (options.kv_cache_tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("cpu backend: kv_cache_tokens %d, want at least 0",
                        options.kv_cache_tokens));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PageCount(const CpuOptions& options,
                                  const CpuModel& model) {
  const int64_t page_bytes = KvStore::PageBytes(model);
  const int64_t context_pages =
      PadTo(model.config().max_positions, kKvPageTokens) / kKvPageTokens;
  int64_t pages = options.kv_cache_bytes / page_bytes;
  if (options.kv_cache_bytes == 0) {
    pages = std::min(CpuOptions::kDefaultContexts * context_pages,
                     CpuOptions::kDefaultKvBytes / page_bytes);
    const int64_t wanted = std::min<int64_t>(options.kv_cache_tokens,
                                             model.config().max_positions);
    pages = std::max<int64_t>(
        {pages, 1, PadTo(wanted, kKvPageTokens) / kKvPageTokens});
  }
  if (pages < 1 || pages > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "cpu backend: kv_cache_bytes %d, want at least %d (one page), at most "
        "2^31 pages",
        options.kv_cache_bytes, page_bytes));
  }
  return pages;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(
    std::unique_ptr<ModelWeights> weights, const CpuOptions& options) {
  FORETOKEN_RETURN_IF_ERROR(CheckOptions(options));
  FORETOKEN_ASSIGN_OR_RETURN(const CpuOps* ops, SelectCpuOps(options.isa));
  const int threads =
      options.threads > 0
          ? options.threads
          : std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1,
                       ThreadPool::kMaxThreads);
  auto pool = std::make_unique<ThreadPool>(threads);
  FORETOKEN_ASSIGN_OR_RETURN(
      CpuModel model, CpuModel::Build(*weights, options.precision, *pool));
  weights.reset();
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t pages, PageCount(options, model));
  FORETOKEN_ASSIGN_OR_RETURN(KvStore store,
                             KvStore::Create(model, pages, options.max_rows));
  auto backend =
      std::make_unique<CpuBackend>(std::move(model), *ops, options,
                                   std::move(pool), std::move(store), pages);
  FORETOKEN_RETURN_IF_ERROR(backend->Init());
  FORETOKEN_LOG(kInfo, "cpu backend: ", ops->name, ", ", threads, " threads, ",
                pages, " KV pages of ", kKvPageTokens, " tokens");
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace foretoken
