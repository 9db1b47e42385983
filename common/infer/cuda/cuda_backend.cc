#include "common/infer/cuda/cuda_backend.h"

#include <algorithm>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "common/base/digest.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/infer/cuda/device_pass_builder.h"
#include "common/infer/cuda/device_weights.h"
#include "common/infer/cuda/status_from_device.h"
#include "common/infer/kv_cache.h"
#include "common/infer/numerics.h"
#include "common/infer/pass_paths.h"
#include "common/infer/pass_plan.h"
#include "common/sampling/sampler.h"

namespace foretoken {
namespace {

class CudaBackend : public Backend {
 public:
  CudaBackend(const ModelConfig& config, const CudaOptions& options,
              DeviceEnginePtr engine, std::string fingerprint)
      : config_(config),
        options_(options),
        engine_(std::move(engine)),
        fingerprint_(std::move(fingerprint)),
        cache_({engine_->pages(), options.max_sessions, options.prefix_reuse}),
        builder_(engine_->pages()) {}

  const ModelConfig& config() const override { return config_; }
  std::string numerics_fingerprint() const override { return fingerprint_; }
  int32_t max_rows() const override { return options_.max_rows; }
  KvUsage kv_usage() const override { return cache_.usage(); }
  int64_t weight_bytes_per_pass() const override {
    return engine_->weight_bytes_per_pass();
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
    if (length > config_.max_positions) {
      return absl::InvalidArgumentError(
          absl::StrFormat("session %d: %d tokens, the model's limit is %d",
                          session, length, config_.max_positions));
    }
    return cache_.Reserve(session, length);
  }

  absl::Status Forward(absl::Span<const PassSession> pass,
                       PassResult& result) override;
  absl::Status Commit(SessionId session,
                      absl::Span<const int32_t> rows) override;
  absl::StatusOr<absl::Span<const float>> Logits(SessionId session,
                                                 int32_t row) override;
  absl::StatusOr<double> MeasureCopyBandwidth() override;

 private:
  struct LastPass {
    int32_t index = 0;  // into plan_.sessions
    bool committed = false;
    // Rows of the session whose KV lies in its next slots already.
    std::vector<int32_t> moved;
  };

  absl::Status CheckNumbers() const;
  absl::Status Report(absl::Span<const PassSession> pass, PassResult& result);
  absl::Status ReportLogprobsOf(int32_t output, int32_t count,
                                SampledToken& token);
  absl::StatusOr<LastPass> ReadWalk(int32_t index) const;
  absl::Status FetchLogits(int32_t output);

  const ModelConfig config_;
  const CudaOptions options_;
  const DeviceEnginePtr engine_;
  const std::string fingerprint_;
  KvCache cache_;
  PassPlan plan_;
  DevicePassBuilder builder_;
  std::vector<DeviceToken> tokens_;  // by output of plan_
  std::vector<DeviceWalk> walks_;    // by session of plan_
  absl::flat_hash_map<SessionId, LastPass> last_pass_;
  std::vector<float> logits_;
  std::vector<float> raw_;
  std::vector<Candidate> candidates_;
};

absl::Status CudaBackend::Forward(absl::Span<const PassSession> pass,
                                  PassResult& result) {
  last_pass_.clear();
  result.outputs.clear();
  FORETOKEN_RETURN_IF_ERROR(
      plan_.Build(pass, config_, cache_, options_.max_rows));
  if (plan_.rows.empty()) return absl::OkStatus();
  if (static_cast<int64_t>(plan_.sessions.size()) > options_.max_sessions) {
    return absl::InternalError("cuda backend: more sessions than there are");
  }
  tokens_.assign(plan_.output_rows.size(), DeviceToken());
  walks_.assign(plan_.sessions.size(), DeviceWalk());
  FORETOKEN_RETURN_IF_ERROR(
      StatusFromDevice(engine_->Forward(builder_.Build(plan_, pass, cache_),
                                        tokens_.data(), walks_.data()),
                       absl::StrFormat("pass of %d rows", plan_.rows.size())));
  FORETOKEN_RETURN_IF_ERROR(CheckNumbers());
  absl::Status reported = Report(pass, result);
  if (!reported.ok()) {
    result.outputs.clear();
    return reported;
  }
  for (size_t s = 0; s < plan_.sessions.size(); ++s) {
    FORETOKEN_ASSIGN_OR_RETURN(LastPass last,
                               ReadWalk(static_cast<int32_t>(s)));
    last_pass_[plan_.sessions[s].id] = std::move(last);
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::CheckNumbers() const {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const PlanRow& row = plan_.rows[plan_.output_rows[i]];
    const PlanSession& session = plan_.sessions[row.session];
    const int32_t local = plan_.output_rows[i] - session.first_row;
    if (tokens_[i].bad != 0) {
      return absl::DataLossError(
          absl::StrFormat("session %d: the model's logits of row %d are not "
                          "numbers",
                          session.id, local));
    }
    if (tokens_[i].token < 0 || tokens_[i].token >= config_.vocab_size) {
      return absl::InternalError(absl::StrFormat(
          "cuda backend: session %d: row %d drew token %d of %d", session.id,
          local, tokens_[i].token, config_.vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::Report(absl::Span<const PassSession> pass,
                                 PassResult& result) {
  result.outputs.resize(pass.size());
  for (size_t s = 0; s < pass.size(); ++s) {
    const PlanSession& session = plan_.sessions[s];
    const int32_t logprobs =
        pass[s].sampling == nullptr ? -1 : pass[s].sampling->params().logprobs;
    result.outputs[s].resize(session.outputs);
    for (int32_t i = 0; i < session.outputs; ++i) {
      const int32_t output = session.first_output + i;
      SampledToken& token = result.outputs[s][i];
      token.token = tokens_[output].token;
      if (logprobs < 0) continue;
      FORETOKEN_RETURN_IF_ERROR(ReportLogprobsOf(output, logprobs, token));
    }
  }
  return absl::OkStatus();
}

// The device keeps kDeviceTopTokens of them; whoever wants more waits for the
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
  for (int32_t i = 0; i < std::min(count, config_.vocab_size); ++i) {
    token.top_logprobs.push_back({from.top_tokens[i], from.top_logprobs[i]});
  }
  return absl::OkStatus();
}

absl::StatusOr<CudaBackend::LastPass> CudaBackend::ReadWalk(
    int32_t index) const {
  LastPass last;
  last.index = index;
  const DeviceWalk& walk = walks_[index];
  if (walk.length == 0) return last;
  const PlanSession& session = plan_.sessions[index];
  const int32_t end = session.first_row + session.rows;
  int32_t row = walk.last_row;
  while (row >= session.first_row && row < end) {
    last.moved.push_back(row - session.first_row);
    row = plan_.rows[row].parent;
  }
  if (row != kRootParent ||
      last.moved.size() != static_cast<size_t>(walk.length)) {
    return absl::InternalError(absl::StrFormat(
        "cuda backend: session %d: a walk of %d rows ended at row %d of %d..%d",
        session.id, walk.length, walk.last_row, session.first_row, end - 1));
  }
  std::reverse(last.moved.begin(), last.moved.end());
  return last;
}

absl::Status CudaBackend::Commit(SessionId session,
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
  const std::vector<int32_t>& moved = last->second.moved;
  const size_t done =
      std::mismatch(rows.begin(), rows.end(), moved.begin(), moved.end())
          .first -
      rows.begin();
  const std::vector<int32_t>& pages = *cache_.PageTable(session);
  std::vector<int32_t> global, slots;
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t row = planned.first_row + rows[i];
    tokens.push_back(plan_.rows[row].token);
    if (i < done) continue;
    global.push_back(row);
    slots.push_back(DevicePassBuilder::SlotOf(pages, length + i));
  }
  if (!global.empty()) {
    FORETOKEN_RETURN_IF_ERROR(
        StatusFromDevice(engine_->Commit(global.data(), slots.data(),
                                         static_cast<int32_t>(global.size())),
                         absl::StrFormat("session %d: commit", session)));
  }
  last->second.committed = true;
  return cache_.Append(session, tokens);
}

absl::Status CudaBackend::FetchLogits(int32_t output) {
  logits_.resize(config_.vocab_size);
  return StatusFromDevice(engine_->Logits(output, logits_.data()), "logits");
}

absl::StatusOr<absl::Span<const float>> CudaBackend::Logits(SessionId session,
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
  FORETOKEN_RETURN_IF_ERROR(
      FetchLogits(static_cast<int32_t>(found - plan_.output_rows.begin())));
  return absl::MakeConstSpan(logits_);
}

absl::StatusOr<double> CudaBackend::MeasureCopyBandwidth() {
  double bytes_per_second = 0.0;
  FORETOKEN_RETURN_IF_ERROR(StatusFromDevice(
      engine_->MeasureCopyBandwidth(&bytes_per_second), "copy bandwidth"));
  return bytes_per_second;
}

absl::Status CheckOptions(const CudaOptions& options, int64_t page_bytes) {
  if (options.max_rows < 1 || options.max_rows > CudaOptions::kMaxRows) {
    return absl::InvalidArgumentError(
        absl::StrFormat("cuda backend: max_rows %d, want 1..%d",
                        options.max_rows, CudaOptions::kMaxRows));
  }
  if (options.max_sessions < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("cuda backend: max_sessions %d, want at least 1",
                        options.max_sessions));
  }
  if (options.kv_cache_bytes < 0 ||
      (options.kv_cache_bytes > 0 && options.kv_cache_bytes < page_bytes)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "cuda backend: kv_cache_bytes %d, want at least %d (one page)",
        options.kv_cache_bytes, page_bytes));
  }
  if (options.kv_cache_tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("cuda backend: kv_cache_tokens %d, want at least 0",
                        options.kv_cache_tokens));
  }
  return absl::OkStatus();
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
  FORETOKEN_RETURN_IF_ERROR(CheckOptions(options, DevicePageBytes(config)));
  const DeviceType type = TypeForDevice(weights);
  FORETOKEN_ASSIGN_OR_RETURN(
      DeviceEnginePtr engine,
      make_engine(ShapeForDevice(config),
                  OptionsForDevice(options, config, type)));
  // The digest reads every byte, as the upload does: beside it, not after.
  std::string digest;
  std::thread hashing([&] { digest = HexDigest(weights.digest()); });
  const RotaryTable rotary = MakeRotaryTable(config);
  absl::Status uploaded = UploadWeights(weights, type, rotary, *engine);
  hashing.join();
  FORETOKEN_RETURN_IF_ERROR(uploaded);
  FORETOKEN_RETURN_IF_ERROR(CheckPages(engine->pages(), options));
  std::string fingerprint = absl::StrFormat(
      "cuda;%s;precision=%s;block=%d;config=%s;rotary=%s;weights=%s",
      engine->numerics(), DeviceTypeName(type), kDevicePageTokens,
      ShortDigest(NumericConfig(config)), rotary.Digest(), digest);
  FORETOKEN_LOG(kInfo, "cuda backend: ", engine->numerics(), ", ",
                engine->pages(), " KV pages of ", kDevicePageTokens, " tokens");
  return std::make_unique<CudaBackend>(config, options, std::move(engine),
                                       std::move(fingerprint));
}

}  // namespace foretoken
