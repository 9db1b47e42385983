#include "common/infer/cuda/cuda_backend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/digest.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/token_range.h"
#include "common/infer/cuda/device_pass_builder.h"
#include "common/infer/cuda/device_weights.h"
#include "common/infer/cuda/status_from_device.h"
#include "common/infer/numerics.h"
#include "common/infer/planned_backend.h"
#include "common/sampling/sampler.h"

namespace foretoken {
namespace {

class CudaBackend : public PlannedBackend {
 public:
  CudaBackend(const ModelConfig& config, const CudaOptions& options,
              DeviceEnginePtr engine, std::string fingerprint)
      : PlannedBackend(config, std::move(fingerprint), options,
                       engine->pages()),
        engine_(std::move(engine)),
        max_sessions_(options.max_sessions),
        builder_(engine_->pages()) {}

  int64_t weight_bytes_per_pass() const override {
    return engine_->weight_bytes_per_pass();
  }
  absl::StatusOr<double> MeasureCopyBandwidth() override;
  bool lost() const override { return lost_; }

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
  // The status of a call, which may be the one that loses the device.
  absl::Status Called(const DeviceStatus& status, absl::string_view context) {
    absl::Status called = StatusFromDevice(status, context);
    // UNAVAILABLE is what StatusFromDevice makes of a fault that no later call
    // survives; the engine loop asks lost() and lets the process be restarted.
    // Logged once, as every pass after it fails as well.
    if (absl::IsUnavailable(called) && !lost_) {
      FORETOKEN_LOG(kError, called.message());
      lost_ = true;
    }
    return called;
  }
  absl::Status CheckTokens() const;
  absl::Status Report(absl::Span<const PassSession> pass,
                      std::vector<std::vector<SampledToken>>& outputs);
  absl::Status ReportLogprobsOf(int32_t output, int32_t count,
                                SampledToken& token);
  absl::StatusOr<std::vector<int32_t>> ReadWalk(size_t index) const;
  absl::Status FetchLogits(int32_t output);
  // Draws output `output` of the plan on the host, among the allowed tokens.
  absl::Status DrawAllowed(const PassSession& source, const uint64_t* allowed,
                           int32_t output, SampledToken& token);

  const DeviceEnginePtr engine_;
  const int32_t max_sessions_;
  DevicePassBuilder builder_;
  std::vector<DeviceToken> tokens_;  // by output of the plan
  std::vector<DeviceWalk> walks_;    // by session of the plan
  // Rows of each session whose KV lies in its next slots already.
  std::vector<std::vector<int32_t>> moved_;
  std::vector<float> logits_;
  std::vector<float> raw_;
  std::vector<Candidate> candidates_;
  std::vector<TokenId> path_;
  SamplingState::Scratch sampling_scratch_;
  bool lost_ = false;
};

absl::Status CudaBackend::RunPlan(
    absl::Span<const PassSession> pass,
    std::vector<std::vector<SampledToken>>& outputs) {
  const size_t sessions = plan().sessions.size();
  // The device's arrays were allocated for max_sessions_ at start, and the
  // kernels index them without a check.
  if (static_cast<int64_t>(sessions) > max_sessions_) {
    return absl::InternalError(
        absl::StrFormat("cuda backend: a pass of %d sessions, want at most %d",
                        sessions, max_sessions_));
  }
  // Cleared, so that nothing of the last pass can be taken for an answer of
  // this one.
  tokens_.assign(plan().output_rows.size(), DeviceToken());
  walks_.assign(sessions, DeviceWalk());
  // Only grows: moved_[s] is assigned for every session of the pass, and
  // CommitRows asks for no others.
  moved_.resize(sessions);
  class Masks : public HostWork {
   public:
    Masks(CudaBackend& backend, absl::Span<const PassSession> pass)
        : backend_(backend), pass_(pass) {}
    // Masks of constraints are made while the device computes: they need the
    // tokens of the draft only, not the logits.
    void Run() override { backend_.MakeMasks(pass_); }

   private:
    CudaBackend& backend_;
    const absl::Span<const PassSession> pass_;
  } masks(*this, pass);
  FORETOKEN_RETURN_IF_ERROR(
      Called(engine_->Forward(builder_.Build(plan(), pass, cache()),
                              tokens_.data(), walks_.data(), masks),
             absl::StrFormat("pass of %d rows", plan().rows.size())));
  FORETOKEN_RETURN_IF_ERROR(CheckTokens());
  // All walks are read before any output is reported, while nothing of this
  // pass is committed: a walk that is impossible means that the KV cannot be
  // trusted, and the pass fails as a whole.
  for (size_t s = 0; s < sessions; ++s) {
    FORETOKEN_ASSIGN_OR_RETURN(moved_[s], ReadWalk(s));
  }
  return Report(pass, outputs);
}

absl::Status CudaBackend::CheckTokens() const {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const int32_t row = plan().output_rows[i];
    // NaN in every logit leaves no token to draw; the cause is bad weights or a
    // faulty device, never the request.
    if (tokens_[i].bad != 0) return NoNumbers(row);
    // The token becomes an index of the embedding in the next pass: a wrong one
    // would read outside it.
    if (!InVocabulary(tokens_[i].token, config().vocab_size)) {
      const PlanSession& session = plan().sessions[plan().rows[row].session];
      return absl::InternalError(absl::StrFormat(
          "cuda backend: session %d: row %d drew token %d of %d", session.id,
          row - session.first_row, tokens_[i].token, config().vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::Report(
    absl::Span<const PassSession> pass,
    std::vector<std::vector<SampledToken>>& outputs) {
  for (size_t s = 0; s < pass.size(); ++s) {
    const int32_t logprobs =
        pass[s].sampling == nullptr ? -1 : pass[s].sampling->reported();
    // Outputs of the plan are numbered session by session, in the order of the
    // pass.
    int32_t output = plan().sessions[s].first_output;
    for (size_t i = 0; i < outputs[s].size(); ++i, ++output) {
      SampledToken& token = outputs[s][i];
      if (const uint64_t* const allowed = MaskOf(s, i); allowed != nullptr) {
        FORETOKEN_RETURN_IF_ERROR(DrawAllowed(pass[s], allowed, output, token));
        continue;
      }
      token.token = tokens_[output].token;
      if (logprobs >= 0) {
        FORETOKEN_RETURN_IF_ERROR(ReportLogprobsOf(output, logprobs, token));
      }
    }
  }
  return absl::OkStatus();
}

// The device knows no masks: what it drew for the row, and where it walked
// after that, is replaced.
absl::Status CudaBackend::DrawAllowed(const PassSession& source,
                                      const uint64_t* allowed, int32_t output,
                                      SampledToken& token) {
  const int32_t row = plan().output_rows[output];
  const PlanSession& session = plan().sessions[plan().rows[row].session];
  FORETOKEN_RETURN_IF_ERROR(FetchLogits(output));
  // The penalties count the tokens of the row's own path, which the session
  // does not have committed yet.
  PathTokens(source, row - session.first_row, path_);
  token = source.sampling->Sample(logits_, path_, allowed, sampling_scratch_);
  // A token whose logit is NaN was not chosen by the model.
  return std::isnan(logits_[token.token]) ? NoNumbers(row) : absl::OkStatus();
}

// The device keeps kDeviceTopTokens of them; a request for more waits for the
// row's logits.
absl::Status CudaBackend::ReportLogprobsOf(int32_t output, int32_t count,
                                           SampledToken& token) {
  if (count > kDeviceTopTokens) {
    FORETOKEN_RETURN_IF_ERROR(FetchLogits(output));
    ReportLogprobs(logits_, count, raw_, candidates_, token);
    return absl::OkStatus();
  }
  const DeviceToken& from = tokens_[output];
  token.logprob = from.logprob;
  // A vocabulary smaller than the number asked for has no more tokens to
  // report.
  for (int32_t i = 0; i < std::min(count, config().vocab_size); ++i) {
    token.top_logprobs.push_back({from.top_tokens[i], from.top_logprobs[i]});
  }
  return absl::OkStatus();
}

// Follows the parents back from the last row of the walk. Fails unless they
// reach the root of the session after as many rows as the device counted.
absl::StatusOr<std::vector<int32_t>> CudaBackend::ReadWalk(size_t index) const {
  std::vector<int32_t> rows;
  const DeviceWalk& walk = walks_[index];
  if (walk.length == 0) return rows;
  const PlanSession& session = plan().sessions[index];
  const int32_t end = session.first_row + session.rows;
  int32_t row = walk.last_row;
  // Parents precede their rows, so the walk ends; the bounds are tested because
  // the device's numbers are not trusted before they are used as indices.
  while (row >= session.first_row && row < end) {
    rows.push_back(row - session.first_row);
    row = plan().rows[row].parent;
  }
  if (row != kRootParent || rows.size() != static_cast<size_t>(walk.length)) {
    return absl::InternalError(absl::StrFormat(
        "cuda backend: session %d: a walk of %d rows ended at row %d of %d..%d",
        session.id, walk.length, walk.last_row, session.first_row, end - 1));
  }
  std::reverse(rows.begin(), rows.end());
  return rows;
}

// The device has already moved the rows of its own walk; only those after the
// point where `rows` leaves it are left to move.
absl::Status CudaBackend::CommitRows(int32_t index,
                                     absl::Span<const int32_t> rows,
                                     absl::Span<const int32_t> pages) {
  const PlanSession& session = plan().sessions[index];
  const std::vector<int32_t>& moved = moved_[index];
  // The verifier accepts what the device drew unless a constraint or a stop
  // changed it, so in most rounds nothing is left to copy and a commit costs no
  // call.
  const size_t done =
      std::mismatch(rows.begin(), rows.end(), moved.begin(), moved.end())
          .first -
      rows.begin();
  std::vector<int32_t> from, to;
  for (size_t i = done; i < rows.size(); ++i) {
    // Scratch slots hold the KV of this pass alone and are overwritten by the
    // next: this copy has to be made before it.
    from.push_back(builder_.ScratchSlot(session.first_row + rows[i]));
    to.push_back(DevicePassBuilder::SlotOf(pages, session.committed + i));
  }
  if (from.empty()) return absl::OkStatus();
  return Called(engine_->CopyKv(from.data(), to.data(),
                                static_cast<int32_t>(from.size())),
                absl::StrFormat("session %d: commit", session.id));
}

absl::Status CudaBackend::CopyPage(int32_t from, int32_t to, int32_t tokens) {
  std::vector<int32_t> from_slots, to_slots;
  for (int32_t i = 0; i < tokens; ++i) {
    from_slots.push_back(from * kDevicePageTokens + i);
    to_slots.push_back(to * kDevicePageTokens + i);
  }
  return Called(engine_->CopyKv(from_slots.data(), to_slots.data(), tokens),
                "copy of a page");
}

absl::Status CudaBackend::FetchLogits(int32_t output) {
  logits_.resize(config().vocab_size);
  return Called(engine_->Logits(output, logits_.data()), "logits");
}

absl::StatusOr<absl::Span<const float>> CudaBackend::OutputLogits(
    int32_t output) {
  FORETOKEN_RETURN_IF_ERROR(FetchLogits(output));
  return absl::MakeConstSpan(logits_);
}

absl::Status CudaBackend::RowStates(int32_t first, int32_t count,
                                    float* states) {
  return Called(engine_->States(first, count, states), "states");
}

absl::StatusOr<double> CudaBackend::MeasureCopyBandwidth() {
  // A probe before serving; its failure does not mark the device lost.
  double bytes_per_second = 0.0;
  FORETOKEN_RETURN_IF_ERROR(StatusFromDevice(
      engine_->MeasureCopyBandwidth(&bytes_per_second), "copy bandwidth"));
  return bytes_per_second;
}

DeviceOptions OptionsForDevice(const CudaOptions& options,
                               const ModelConfig& config, DeviceType type) {
  DeviceOptions device;
  device.device = options.device;
  device.type = type;
  device.max_rows = options.max_rows;
  device.max_sessions = options.max_sessions;
  device.graphs = options.graphs;
  device.overlap = options.overlap;
  // 0 if kv_cache_bytes is 0: the engine then chooses between the two bounds
  // below, knowing how much memory the weights leave.
  device.pages = options.kv_cache_bytes / DevicePageBytes(config);
  const auto pages_of = [](int64_t tokens) {
    return (tokens + kDevicePageTokens - 1) / kDevicePageTokens;
  };
  device.max_pages =
      CudaOptions::kDefaultContexts * pages_of(config.max_positions);
  device.min_pages = pages_of(
      std::min<int64_t>(options.kv_cache_tokens, config.max_positions));
  return device;
}

absl::Status CheckPages(int64_t pages, const CudaOptions& options) {
  // Slots are 32-bit.
  // Scratch slots of a pass's rows follow those of the pages, so both share the
  // range of a slot number.
  const int64_t most =
      (std::numeric_limits<int32_t>::max() - options.max_rows) /
      kDevicePageTokens;
  if (pages >= 1 && pages <= most) return absl::OkStatus();
  if (pages < 1) {
    return absl::ResourceExhaustedError(
        "cuda backend: no memory is left for a page of KV");
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "cuda backend: %d KV pages, want at most %d", pages, most));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(
    const ModelWeights& weights, DeviceEngineMaker make_engine,
    const CudaOptions& options) {
  const ModelConfig& config = weights.config();
  FORETOKEN_RETURN_IF_ERROR(options.Check("cuda backend"));
  const int64_t page_bytes = DevicePageBytes(config);
  if (options.kv_cache_bytes > 0 && options.kv_cache_bytes < page_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "cuda backend: kv_cache_bytes %d, want at least %d (one page)",
        options.kv_cache_bytes, page_bytes));
  }
  const DeviceType type = TypeForDevice(weights);
  FORETOKEN_ASSIGN_OR_RETURN(
      DeviceEnginePtr engine,
      make_engine(ShapeForDevice(config),
                  OptionsForDevice(options, config, type)));
  // The digest reads every byte, as the upload does: beside it, not after.
  std::string digest;
  // `weights` is only read by both threads. Joined before any return below,
  // since the thread refers to locals.
  std::thread hashing([&] { digest = HexDigest(weights.digest()); });
  const RotaryTable rotary = MakeRotaryTable(config);
  absl::Status uploaded = UploadWeights(weights, type, rotary, *engine);
  hashing.join();
  FORETOKEN_RETURN_IF_ERROR(uploaded);
  FORETOKEN_RETURN_IF_ERROR(CheckPages(engine->pages(), options));
  // Everything that can change a bit of the results: kernels and device
  // (numerics), types, block size, config, rotary angles as computed by this
  // host's libm, and weights. Sessions may move only between servers whose
  // fingerprints are equal.
  std::string fingerprint = absl::StrFormat(
      "cuda;%s;precision=%s;block=%d;config=%s;rotary=%s;weights=%s",
      engine->numerics(), DeviceTypeName(type), kDevicePageTokens,
      ShortDigest(NumericConfig(config)), rotary.Digest(), digest);
  FORETOKEN_LOG(kInfo, "cuda backend: ", engine->name(), ", ",
                engine->numerics(), ", ", engine->pages(), " KV pages of ",
                kDevicePageTokens, " tokens");
  return std::make_unique<CudaBackend>(config, options, std::move(engine),
                                       std::move(fingerprint));
}

}  // namespace foretoken
