#include "common/infer/cpu/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/infer/cpu/cpu_forward.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/cpu/cpu_model.h"
#include "common/infer/cpu/kv_store.h"
#include "common/infer/cpu/ops_probe.h"
#include "common/infer/numerics.h"
#include "common/infer/planned_backend.h"
#include "common/sampling/sampler.h"

namespace foretoken {
namespace {

// Increment with every change of the kernels that may change a bit of output.
constexpr int kKernelVersion = 4;

// What the products with quantised weights round their activations to, or the
// precision if there are none.
std::string Activations(const CpuModel& model, const std::string& precision) {
  const auto products = model.products_per_row();
  std::vector<std::string> names;
  if (products[static_cast<int>(ActivationType::kInt8)] > 0) {
    names.push_back(absl::StrCat("int8x", kQuantBlock));
  }
  if (products[static_cast<int>(ActivationType::kInt8Super)] > 0) {
    names.push_back(absl::StrCat("int8x", kSuperBlock));
  }
  // The rounding of activations changes results as much as that of weights
  // does, so it is part of the fingerprint.
  return names.empty() ? precision : absl::StrJoin(names, "+");
}

std::string Fingerprint(const CpuModel& model, KvType kv_type,
                        const CpuOps& ops) {
  const std::string precision =
      model.precision() == Precision::kBFloat16 ? "bf16" : "fp32";
  const auto products = model.products_per_row();
  const bool bf16 = products[static_cast<int>(ActivationType::kBFloat16)] > 0;
  // All others compute the same bits (ops.h).
  // vdpbf16ps adds the products of a pair in an order of its own.
  const bool own_order = bf16 && ops.isa == CpuIsa::kAvx512Bf16;
  std::string text = absl::StrFormat(
      "cpu;kernel=%d;isa=%s;precision=%s;kv=%s;matrices=%s;activations=%s;"
      "block=%d;probe=%s;config=%s;weights=%s",
      kKernelVersion, own_order ? ops.name : "common", precision,
      kKvTypeNames[static_cast<int>(kv_type)], model.MatrixTypes(),
      Activations(model, precision), kAttendKeys,
      ProbeOps(ops, model.config(), bf16),
      ShortDigest(NumericConfig(model.config())), model.weights_digest());
  // Added only if set, so that the fingerprints of models as stored did not
  // change when conversions came.
  if (model.conversion() != WeightConversion::kKeep) {
    absl::StrAppend(
        &text, ";conversion=",
        kWeightConversionNames[static_cast<int>(model.conversion())]);
  }
  if (const auto ids = model.head_ids(); !ids.empty()) {
    absl::StrAppend(&text, ";head=", ids.size(), ",",
                    ShortDigest(absl::StrJoin(ids, ",")));
  }
  return text;
}

class CpuBackend : public PlannedBackend {
 public:
  // One scratch per thread of the pool: draws run on all of them at once.
  CpuBackend(CpuModel model, const CpuOps& ops, const CpuOptions& options,
             std::unique_ptr<ThreadPool> pool, KvStore store, int64_t pages)
      : PlannedBackend(model.config(),
                       Fingerprint(model, store.layout().type, ops), options,
                       pages),
        model_(std::move(model)),
        ops_(ops),
        pool_(std::move(pool)),
        store_(std::move(store)),
        scratch_(pool_->threads()) {}

  absl::Status Init() {
    // After construction, as the forward pass refers to model_ and store_ in
    // their final place.
    FORETOKEN_ASSIGN_OR_RETURN(
        forward_, CpuForward::Create(model_, ops_, store_, *pool_, max_rows()));
    return absl::OkStatus();
  }

  int64_t weight_bytes_per_pass() const override {
    return model_.bytes_per_pass();
  }
  int64_t kv_bytes_per_token() const override {
    return store_.bytes_per_token();
  }
  double MeasureProductSeconds() override;
  bool Draws(TokenId token) const override { return model_.InHead(token); }

 protected:
  absl::Status RunPlan(
      absl::Span<const PassSession> pass,
      std::vector<std::vector<SampledToken>>& outputs) override;
  absl::Status CommitRows(int32_t index, absl::Span<const int32_t> rows,
                          absl::Span<const int32_t> pages) override;
  absl::Status CopyPage(int32_t from, int32_t to, int32_t tokens) override;
  absl::StatusOr<absl::Span<const float>> OutputLogits(int32_t output) override;
  absl::Status RowStates(int32_t first, int32_t count, float* states) override;

 private:
  // `output` counts the session's output rows.
  SampledToken DrawOne(const PassSession& source, int32_t row,
                       const uint64_t* allowed, absl::Span<const float> logits,
                       int thread);

  // Scratch of one thread that draws tokens.
  struct DrawScratch {
    SamplingState::Scratch sampling;
    std::vector<TokenId> path;
  };

  const CpuModel model_;
  const CpuOps& ops_;
  const std::unique_ptr<ThreadPool> pool_;
  KvStore store_;
  std::unique_ptr<CpuForward> forward_;
  std::vector<DrawScratch> scratch_;
};

absl::Status CpuBackend::RunPlan(
    absl::Span<const PassSession> pass,
    std::vector<std::vector<SampledToken>>& outputs) {
  FORETOKEN_RETURN_IF_ERROR(forward_->Run(plan()));
  // All cores compute: nothing is gained by making them meanwhile.
  MakeMasks(pass);
  std::atomic<int32_t> without_number = -1;  // a row whose logits are all NaN
  const int64_t total = static_cast<int64_t>(plan().output_rows.size());
  // In chunks, because the logits of all rows of a large pass would take more
  // memory than the model.
  for (int64_t first = 0; first < total; first += CpuForward::kLogitRows) {
    const int64_t count =
        std::min<int64_t>(CpuForward::kLogitRows, total - first);
    forward_->ComputeLogits(first, count);
    // Rows are independent: each thread writes its own outputs, and its own
    // scratch.
    pool_->ParallelForThreads(count, [&](int64_t i, int thread) {
      const int32_t row = plan().output_rows[first + i];
      const int32_t s = plan().rows[row].session;
      const PlanSession& session = plan().sessions[s];
      const absl::Span<const float> logits = forward_->logits(i);
      const int64_t output = first + i - session.first_output;
      SampledToken& drawn = outputs[s][output];
      drawn = DrawOne(pass[s], row - session.first_row, MaskOf(s, output),
                      logits, thread);
      // NaN is never preferred: where it is drawn there was nothing else. Nor
      // is an id that the head leaves out.
      if (std::isnan(logits[drawn.token]) || !model_.InHead(drawn.token)) {
        // Any bad row will do for the error; relaxed, because the pool's end
        // orders it before the load below.
        without_number.store(row, std::memory_order_relaxed);
      }
    });
  }
  const int32_t row = without_number.load(std::memory_order_relaxed);
  // One bad row fails the pass: the engine then runs its sessions alone to find
  // whose it is.
  return row < 0 ? absl::OkStatus() : NoNumbers(row);
}

// On all threads at once, as a pass runs.
double CpuBackend::MeasureProductSeconds() {
  // Long enough that starting the threads does not show.
  constexpr int64_t kSteps = 50000;
  const auto products = model_.products_per_row();
  double seconds = 0.0;
  for (int type = 0; type < kActivationTypes; ++type) {
    if (products[type] == 0) continue;
    std::atomic<int64_t> done = 0;
    const absl::Time start = MonotonicNow();
    pool_->ParallelFor(pool_->threads(), [&](int64_t) {
      float sink[kPeakSink] = {};
      // The results are not used, but they are stored, so the loop is not
      // removed.
      done += ops_.peak[type](kSteps, sink);
    });
    const double taken = absl::ToDoubleSeconds(MonotonicNow() - start);
    seconds +=
        taken * static_cast<double>(products[type]) / static_cast<double>(done);
  }
  return seconds;
}

SampledToken CpuBackend::DrawOne(const PassSession& source, int32_t row,
                                 const uint64_t* allowed,
                                 absl::Span<const float> logits, int thread) {
  // Without sampling the largest logit, of equals the first: what the sampler
  // does at temperature 0.
  if (source.sampling == nullptr) {
    SampledToken token;
    token.token = ops_.arg_max(logits.data(), static_cast<int>(logits.size()));
    return token;
  }
  DrawScratch& scratch = scratch_[thread];
  PathTokens(source, row, scratch.path);
  return source.sampling->Sample(logits, scratch.path, allowed,
                                 scratch.sampling);
}

absl::Status CpuBackend::CommitRows(int32_t index,
                                    absl::Span<const int32_t> rows,
                                    absl::Span<const int32_t> pages) {
  const PlanSession& session = plan().sessions[index];
  std::vector<int32_t> global;
  for (const int32_t row : rows) global.push_back(session.first_row + row);
  // All layers and heads at once: the rows of a path are few, their copies are
  // many.
  store_.Commit(global, session.committed, pages, *pool_);
  return absl::OkStatus();
}

// Copies the whole page: the slots after `tokens` are written before they are
// read.
absl::Status CpuBackend::CopyPage(int32_t from, int32_t to, int32_t) {
  store_.CopyPage(from, to);
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> CpuBackend::OutputLogits(
    int32_t output) {
  // Computed again: the pass keeps no more than a chunk of logits. By row
  // invariance these are the same.
  forward_->ComputeLogits(output, 1);
  return forward_->logits(0);
}

absl::Status CpuBackend::RowStates(int32_t first, int32_t count,
                                   float* states) {
  forward_->ComputeStates(first, count, states);
  return absl::OkStatus();
}

CpuModelOptions ModelOptions(const CpuOptions& options) {
  return {options.precision, options.conversion, options.head_size,
          options.head_first};
}

void LogModel(const CpuModel& model, absl::Duration took) {
  const auto megabytes = [](int64_t bytes) {
    return absl::StrFormat("%.1f MB", static_cast<double>(bytes) / 1e6);
  };
  std::string head;
  if (const auto ids = model.head_ids(); !ids.empty()) {
    head = absl::StrCat(", logits of ", ids.size(), " of ",
                        model.config().vocab_size, " ids");
  }
  FORETOKEN_LOG(
      kInfo, "cpu backend: matrices of ", megabytes(model.stored_bytes()),
      model.conversion() == WeightConversion::kKeep ? "" : ", converted",
      ", a pass reads ", megabytes(model.bytes_per_pass()), " in ",
      model.MatrixTypes(), head, "; loaded in ",
      absl::StrFormat("%.1f s", absl::ToDoubleSeconds(took)));
}

absl::StatusOr<int64_t> PageCount(const CpuOptions& options,
                                  const CpuModel& model, KvType kv_type) {
  const int64_t page_bytes = KvStore::PageBytes(model, kv_type);
  const int64_t context_pages =
      PadTo(model.config().max_positions, kKvPageTokens) / kKvPageTokens;
  int64_t pages = options.kv_cache_bytes / page_bytes;
  if (options.kv_cache_bytes == 0) {
    pages = std::min(CpuOptions::kDefaultContexts * context_pages,
                     CpuOptions::kDefaultKvBytes / page_bytes);
    // A caller that knows what it will need (a local run) gets room for that,
    // even beyond the default.
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
  FORETOKEN_RETURN_IF_ERROR(options.Check("cpu backend"));
  if (options.threads < 0 || options.threads > ThreadPool::kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrFormat("cpu backend: threads %d, want 0..%d", options.threads,
                        ThreadPool::kMaxThreads));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const CpuOps* ops, SelectCpuOps(options.isa));
  // Tests pass their own table.
  if (options.ops != nullptr) ops = options.ops;
  const int threads =
      options.threads > 0
          ? options.threads
          : std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1,
                       ThreadPool::kMaxThreads);
  auto pool = std::make_unique<ThreadPool>(threads);
  const absl::Time start = MonotonicNow();
  // Before the KV cache is sized: packing shows how much memory the weights
  // take.
  FORETOKEN_ASSIGN_OR_RETURN(
      CpuModel model,
      CpuModel::Build(std::move(weights), ModelOptions(options), *pool));
  LogModel(model, MonotonicNow() - start);
  const KvType kv_type = options.kv_type.value_or(
      options.precision == Precision::kBFloat16 ? KvType::kBFloat16
                                                : KvType::kFloat32);
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t pages,
                             PageCount(options, model, kv_type));
  FORETOKEN_ASSIGN_OR_RETURN(
      KvStore store, KvStore::Create(model, kv_type, pages, options.max_rows));
  auto backend =
      std::make_unique<CpuBackend>(std::move(model), *ops, options,
                                   std::move(pool), std::move(store), pages);
  FORETOKEN_RETURN_IF_ERROR(backend->Init());
  FORETOKEN_LOG(kInfo, "cpu backend: ", ops->name, ", ", threads, " threads, ",
                pages, " KV pages of ", kKvPageTokens, " tokens in ",
                kKvTypeNames[static_cast<int>(kv_type)]);
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace foretoken
