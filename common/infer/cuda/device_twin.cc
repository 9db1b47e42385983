#include "common/infer/cuda/device_twin.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "common/infer/cuda/status_from_device.h"
#include "common/infer/cuda/twin_math.h"
#include "common/sampling/sampler.h"

namespace foretoken {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

DeviceStatus Error(absl::StatusCode code, const char* format, ...)
    __attribute__((format(printf, 2, 3)));
DeviceStatus Error(absl::StatusCode code, const char* format, ...) {
  DeviceStatus status;
  status.code = static_cast<int32_t>(code);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(status.message, sizeof(status.message), format, arguments);
  va_end(arguments);
  return status;
}

struct TensorSize {
  int64_t rows = 0;  // 0: the model has no such tensor
  int64_t cols = 0;
  bool matrix = false;  // in the weights' type; else fp32
};

TensorSize SizeOf(const DeviceShape& s, DeviceTensor tensor) {
  using enum DeviceTensor;
  const int64_t q = int64_t{s.heads} * s.head_dim;
  const int64_t kv = int64_t{s.kv_heads} * s.head_dim;
  const auto matrix = [](int64_t rows, int64_t cols) {
    return TensorSize{rows, cols, true};
  };
  const auto vector = [](int64_t size, bool present = true) {
    return TensorSize{present ? 1 : 0, size, false};
  };
  switch (tensor) {
    case kEmbedding:
      return matrix(s.vocab, s.d_model);
    case kOutput:
      return matrix(s.tied_embeddings ? 0 : s.vocab, s.d_model);
    case kQuery:
      return matrix(q, s.d_model);
    case kKey:
    case kValue:
      return matrix(kv, s.d_model);
    case kAttentionOutput:
      return matrix(s.d_model, q);
    case kGate:
    case kUp:
      return matrix(s.d_ff, s.d_model);
    case kDown:
      return matrix(s.d_model, s.d_ff);
    case kFinalNorm:
    case kAttentionNorm:
    case kFeedForwardNorm:
      return vector(s.d_model);
    case kQueryBias:
      return vector(q, s.qkv_bias);
    case kKeyBias:
    case kValueBias:
      return vector(kv, s.qkv_bias);
    case kQueryNorm:
    case kKeyNorm:
      return vector(s.head_dim, s.qk_norm);
    case kAttentionOutputBias:
      return vector(s.d_model, s.output_bias);
    case kGateBias:
    case kUpBias:
      return vector(s.d_ff, s.mlp_bias);
    case kDownBias:
      return vector(s.d_model, s.mlp_bias);
  }
  return {};
}

bool IsOfALayer(DeviceTensor tensor) {
  return tensor != DeviceTensor::kEmbedding &&
         tensor != DeviceTensor::kOutput && tensor != DeviceTensor::kFinalNorm;
}

class DeviceTwin : public DeviceEngine {
 public:
  DeviceTwin(const DeviceShape& shape, const DeviceOptions& options,
             int64_t pages)
      : shape_(shape), options_(options), pages_(pages) {
    slots_ = pages_ * kDevicePageTokens + options_.max_rows;
    kv_width_ = int64_t{shape_.kv_heads} * shape_.head_dim;
    keys_.resize(shape_.layers * slots_ * kv_width_);
    values_.resize(keys_.size());
  }

  int64_t pages() const override { return pages_; }
  int64_t weight_bytes_per_pass() const override { return 0; }
  const char* numerics() const override { return "twin;kernel=1"; }

  DeviceStatus Upload(DeviceTensor tensor, int32_t layer, const void* data,
                      int64_t rows, int64_t cols) override;
  DeviceStatus FinishWeights(const float* cosines, const float* sines) override;
  DeviceStatus Forward(const DevicePass& pass, DeviceToken* tokens,
                       DeviceWalk* walks) override;
  DeviceStatus Commit(const int32_t* rows, const int32_t* slots,
                      int32_t count) override;
  DeviceStatus Logits(int32_t output, float* logits) override;
  DeviceStatus MeasureCopyBandwidth(double* bytes_per_second) override {
    *bytes_per_second = 0.0;
    return {};
  }

 private:
  using Row = std::vector<float>;

  // Empty where the model has no such tensor.
  const Row& Weights(DeviceTensor tensor, int32_t layer = 0) const;
  int64_t ScratchSlot(int64_t row) const {
    return pages_ * kDevicePageTokens + row;
  }
  float* Slot(std::vector<float>& kv, int32_t layer, int64_t slot) {
    return &kv[(layer * slots_ + slot) * kv_width_];
  }
  void RoundAll(Row& row) const;
  // x * w + bias; bias may be empty.
  Row Product(const Row& x, DeviceTensor w, DeviceTensor bias,
              int32_t layer) const;
  void NormHeads(float* heads, int32_t count, DeviceTensor norm,
                 int32_t layer) const;

  DeviceStatus CheckPass(const DevicePass& pass) const;
  void ProjectRow(const DeviceRow& row, int64_t index, int32_t layer,
                  const Row& hidden, Row& query);
  Row Attend(const DevicePass& pass, const DeviceRow& row, int32_t layer,
             const Row& query);
  void FeedForward(int32_t layer, Row& hidden) const;
  void ComputeLogits(const DevicePass& pass, const std::vector<Row>& hidden);
  DeviceToken Sample(const DevicePass& pass, int32_t output);
  void Adjust(const DevicePass& pass, const DeviceSampling& sampling,
              const DeviceOutput& output, Row& logits) const;
  DeviceWalk Walk(const DevicePass& pass, const DeviceSession& session,
                  const DeviceToken* tokens);
  void Move(int64_t from, int64_t to);

  const DeviceShape shape_;
  const DeviceOptions options_;
  const int64_t pages_;
  int64_t slots_ = 0;
  int64_t kv_width_ = 0;
  std::map<std::pair<DeviceTensor, int32_t>, Row> weights_;
  const Row none_;
  Row cosines_, sines_;
  bool ready_ = false;
  std::vector<float> keys_, values_;  // [layers][slots][kv heads * head_dim]
  std::vector<Row> logits_;           // by output of the last pass
  int32_t last_rows_ = 0;
};

DeviceStatus DeviceTwin::Upload(DeviceTensor tensor, int32_t layer,
                                const void* data, int64_t rows, int64_t cols) {
  const TensorSize want = SizeOf(shape_, tensor);
  if (want.rows == 0 || rows != want.rows || cols != want.cols || layer < 0 ||
      layer >= (IsOfALayer(tensor) ? shape_.layers : 1)) {
    return Error(absl::StatusCode::kInternal,
                 "tensor %d of layer %d: %lld x %lld, want %lld x %lld",
                 static_cast<int>(tensor), layer, static_cast<long long>(rows),
                 static_cast<long long>(cols),
                 static_cast<long long>(want.rows),
                 static_cast<long long>(want.cols));
  }
  const auto [it, added] = weights_.try_emplace({tensor, layer});
  if (!added) {
    return Error(absl::StatusCode::kInternal, "tensor %d of layer %d: twice",
                 static_cast<int>(tensor), layer);
  }
  it->second.resize(rows * cols);
  if (want.matrix) {
    twin::Widen(options_.type, data, rows * cols, it->second.data());
  } else {
    std::memcpy(it->second.data(), data, rows * cols * sizeof(float));
  }
  return {};
}

DeviceStatus DeviceTwin::FinishWeights(const float* cosines,
                                       const float* sines) {
  for (int t = 0; t <= static_cast<int>(DeviceTensor::kDownBias); ++t) {
    const DeviceTensor tensor = static_cast<DeviceTensor>(t);
    if (SizeOf(shape_, tensor).rows == 0) continue;
    for (int32_t i = 0; i < (IsOfALayer(tensor) ? shape_.layers : 1); ++i) {
      if (weights_.count({tensor, i}) > 0) continue;
      return Error(absl::StatusCode::kInternal,
                   "tensor %d of layer %d is missing", t, i);
    }
  }
  const int64_t size = int64_t{shape_.max_positions} * (shape_.head_dim / 2);
  cosines_.assign(cosines, cosines + size);
  sines_.assign(sines, sines + size);
  ready_ = true;
  return {};
}

const DeviceTwin::Row& DeviceTwin::Weights(DeviceTensor tensor,
                                           int32_t layer) const {
  const auto found = weights_.find({tensor, layer});
  return found == weights_.end() ? none_ : found->second;
}

void DeviceTwin::RoundAll(Row& row) const {
  for (float& value : row) value = twin::Round(options_.type, value);
}

DeviceTwin::Row DeviceTwin::Product(const Row& x, DeviceTensor w,
                                    DeviceTensor bias, int32_t layer) const {
  const TensorSize size = SizeOf(shape_, w);
  Row out(size.rows);
  twin::Multiply(x.data(), Weights(w, layer).data(), size.rows, size.cols,
                 out.data());
  const Row& add = Weights(bias, layer);
  for (size_t i = 0; i < add.size(); ++i) out[i] += add[i];
  return out;
}

void DeviceTwin::NormHeads(float* heads, int32_t count, DeviceTensor norm,
                           int32_t layer) const {
  const Row& weight = Weights(norm, layer);
  if (weight.empty()) return;
  for (int32_t h = 0; h < count; ++h, heads += shape_.head_dim) {
    twin::RmsNorm(heads, weight.data(), shape_.head_dim, shape_.rms_norm_eps,
                  heads);
  }
}

// Everything that the kernels would read out of bounds on.
DeviceStatus DeviceTwin::CheckPass(const DevicePass& pass) const {
  bool good = ready_ && pass.rows.size <= options_.max_rows &&
              pass.sessions.size <= options_.max_sessions;
  for (int32_t r = 0; r < pass.rows.size && good; ++r) {
    const DeviceRow& row = pass.rows.data[r];
    good = row.token >= 0 && row.token < shape_.vocab && row.position >= 0 &&
           row.position < shape_.max_positions && row.session >= 0 &&
           row.session < pass.sessions.size && row.tile_count >= 1 &&
           row.tile_begin + row.tile_count <= pass.row_tiles.size &&
           row.last_keys >= 1 && row.last_keys <= kDevicePageTokens &&
           row.parent < r && row.output < pass.outputs.size;
  }
  for (int32_t i = 0; i < pass.pages.size && good; ++i) {
    good = pass.pages.data[i] >= 0 && pass.pages.data[i] < pages_;
  }
  for (int32_t i = 0; i < pass.commit_slots.size && good; ++i) {
    good = pass.commit_slots.data[i] >= 0 &&
           pass.commit_slots.data[i] < pages_ * kDevicePageTokens;
  }
  if (good) return {};
  return Error(absl::StatusCode::kInternal, "a pass that makes no sense");
}

DeviceStatus DeviceTwin::Forward(const DevicePass& pass, DeviceToken* tokens,
                                 DeviceWalk* walks) {
  DeviceStatus status = CheckPass(pass);
  if (!status.ok()) return status;
  last_rows_ = pass.rows.size;
  std::vector<Row> hidden(pass.rows.size), query(pass.rows.size);
  for (int32_t r = 0; r < pass.rows.size; ++r) {
    const float* from =
        &Weights(DeviceTensor::kEmbedding)[int64_t{pass.rows.data[r].token} *
                                           shape_.d_model];
    hidden[r].assign(from, from + shape_.d_model);
  }
  for (int32_t layer = 0; layer < shape_.layers; ++layer) {
    for (int32_t r = 0; r < pass.rows.size; ++r) {
      ProjectRow(pass.rows.data[r], r, layer, hidden[r], query[r]);
    }
    for (int32_t r = 0; r < pass.rows.size; ++r) {
      Row attended = Attend(pass, pass.rows.data[r], layer, query[r]);
      RoundAll(attended);
      const Row out = Product(attended, DeviceTensor::kAttentionOutput,
                              DeviceTensor::kAttentionOutputBias, layer);
      for (size_t i = 0; i < out.size(); ++i) hidden[r][i] += out[i];
      FeedForward(layer, hidden[r]);
    }
  }
  ComputeLogits(pass, hidden);
  for (int32_t i = 0; i < pass.outputs.size; ++i) tokens[i] = Sample(pass, i);
  for (int32_t s = 0; s < pass.sessions.size; ++s) {
    walks[s] = Walk(pass, pass.sessions.data[s], tokens);
  }
  return {};
}

// Norm, Q, K and V; K and V go to the row's scratch slot.
void DeviceTwin::ProjectRow(const DeviceRow& row, int64_t index, int32_t layer,
                            const Row& hidden, Row& query) {
  using enum DeviceTensor;
  Row x(hidden.size());
  twin::RmsNorm(hidden.data(), Weights(kAttentionNorm, layer).data(),
                shape_.d_model, shape_.rms_norm_eps, x.data());
  RoundAll(x);
  query = Product(x, kQuery, kQueryBias, layer);
  Row key = Product(x, kKey, kKeyBias, layer);
  Row value = Product(x, kValue, kValueBias, layer);
  NormHeads(query.data(), shape_.heads, kQueryNorm, layer);
  NormHeads(key.data(), shape_.kv_heads, kKeyNorm, layer);
  const int64_t half = shape_.head_dim / 2;
  const float* cosines = &cosines_[row.position * half];
  const float* sines = &sines_[row.position * half];
  for (int32_t h = 0; h < shape_.heads; ++h) {
    twin::Rotate(&query[h * shape_.head_dim], cosines, sines, half);
  }
  for (int32_t h = 0; h < shape_.kv_heads; ++h) {
    twin::Rotate(&key[h * shape_.head_dim], cosines, sines, half);
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
  for (float& q : query) q *= scale;
  RoundAll(key);
  RoundAll(value);
  std::copy(key.begin(), key.end(), Slot(keys_, layer, ScratchSlot(index)));
  std::copy(value.begin(), value.end(),
            Slot(values_, layer, ScratchSlot(index)));
}

// Whole pages of the session, then the row's tiles, in order of position.
DeviceTwin::Row DeviceTwin::Attend(const DevicePass& pass, const DeviceRow& row,
                                   int32_t layer, const Row& query) {
  const DeviceSession& session = pass.sessions.data[row.session];
  const int32_t head_dim = shape_.head_dim;
  const int32_t group = shape_.heads / shape_.kv_heads;
  Row out(query.size(), 0.0f);
  for (int32_t h = 0; h < shape_.heads; ++h) {
    const int64_t offset = int64_t{h / group} * head_dim;
    twin::Attention state{kMinusInfinity, 0.0f, &out[h * head_dim]};
    const auto merge = [&](int32_t count, auto slot_of) {
      const float* keys[kDevicePageTokens];
      const float* values[kDevicePageTokens];
      for (int32_t j = 0; j < count; ++j) {
        keys[j] = Slot(keys_, layer, slot_of(j)) + offset;
        values[j] = Slot(values_, layer, slot_of(j)) + offset;
      }
      twin::MergeBlock(&query[h * head_dim], keys, values, count, head_dim,
                       state);
    };
    for (int32_t p = 0; p < session.page_count; ++p) {
      const int64_t page = pass.pages.data[session.page_begin + p];
      merge(kDevicePageTokens,
            [&](int32_t j) { return page * kDevicePageTokens + j; });
    }
    for (int32_t t = 0; t < row.tile_count; ++t) {
      const DeviceTile& tile =
          pass.tiles.data[pass.row_tiles.data[row.tile_begin + t]];
      const bool last = t + 1 == row.tile_count;
      merge(last ? row.last_keys : kDevicePageTokens,
            [&](int32_t j) { return tile.slots[j]; });
    }
    for (int32_t d = 0; d < head_dim; ++d) state.values[d] /= state.sum;
  }
  return out;
}

void DeviceTwin::FeedForward(int32_t layer, Row& hidden) const {
  using enum DeviceTensor;
  Row x(hidden.size());
  twin::RmsNorm(hidden.data(), Weights(kFeedForwardNorm, layer).data(),
                shape_.d_model, shape_.rms_norm_eps, x.data());
  RoundAll(x);
  Row gate = Product(x, kGate, kGateBias, layer);
  const Row up = Product(x, kUp, kUpBias, layer);
  for (size_t i = 0; i < gate.size(); ++i) {
    gate[i] = twin::Silu(gate[i]) * up[i];
  }
  RoundAll(gate);
  const Row out = Product(gate, kDown, kDownBias, layer);
  for (size_t i = 0; i < out.size(); ++i) hidden[i] += out[i];
}

void DeviceTwin::ComputeLogits(const DevicePass& pass,
                               const std::vector<Row>& hidden) {
  const Row& head = Weights(shape_.tied_embeddings ? DeviceTensor::kEmbedding
                                                   : DeviceTensor::kOutput);
  logits_.assign(pass.outputs.size, Row(shape_.vocab));
  Row x(shape_.d_model);
  for (int32_t i = 0; i < pass.outputs.size; ++i) {
    const Row& from = hidden[pass.outputs.data[i].row];
    twin::RmsNorm(from.data(), Weights(DeviceTensor::kFinalNorm).data(),
                  shape_.d_model, shape_.rms_norm_eps, x.data());
    RoundAll(x);
    twin::Multiply(x.data(), head.data(), shape_.vocab, shape_.d_model,
                   logits_[i].data());
  }
}

void DeviceTwin::Adjust(const DevicePass& pass, const DeviceSampling& sampling,
                        const DeviceOutput& output, Row& logits) const {
  for (float& logit : logits) {
    if (logit != logit) logit = kMinusInfinity;
  }
  const DeviceCount* path = pass.counts.data + output.count_begin;
  const auto penalise = [&](const DeviceCount& seen) {
    float& logit = logits[seen.token];
    const float r = sampling.repetition_penalty;
    if (r != 1.0f) logit = logit > 0.0f ? logit / r : logit * r;
    if (seen.count > 0) {
      logit -= sampling.frequency_penalty * static_cast<float>(seen.count);
      logit -= sampling.presence_penalty;
    }
  };
  for (int32_t i = 0; i < sampling.counts; ++i) {
    const DeviceCount& seen = pass.counts.data[sampling.count_begin + i];
    const bool on_path = std::any_of(
        path, path + output.counts,
        [&](const DeviceCount& count) { return count.token == seen.token; });
    if (!on_path) penalise(seen);
  }
  for (int32_t i = 0; i < output.counts; ++i) penalise(path[i]);
  for (int32_t i = 0; i < sampling.biases; ++i) {
    const DeviceBias& bias = pass.biases.data[sampling.bias_begin + i];
    logits[bias.token] += bias.bias;
  }
  for (int32_t i = 0; i < output.bans; ++i) {
    logits[pass.biases.data[output.ban_begin + i].token] = kMinusInfinity;
  }
}

DeviceToken DeviceTwin::Sample(const DevicePass& pass, int32_t index) {
  const DeviceOutput& output = pass.outputs.data[index];
  const Row& raw = logits_[index];
  DeviceToken token;
  token.bad = std::all_of(raw.begin(), raw.end(),
                          [](float logit) { return logit != logit; });
  const int32_t s =
      pass.sessions.data[pass.rows.data[output.row].session].sampling;
  SamplingParams params;
  std::vector<Candidate> candidates;
  Row logits = raw;
  if (s >= 0) {
    const DeviceSampling& sampling = pass.samplings.data[s];
    Adjust(pass, sampling, output, logits);
    params.temperature = sampling.temperature;
    params.top_k = sampling.top_k;
    params.top_p = sampling.top_p;
    params.min_p = sampling.min_p;
    params.seed = sampling.seed;
  }
  token.token = DrawToken(logits, params, output.position, candidates);
  if (!pass.logprobs) return token;
  SampledToken report;
  report.token = token.token;
  ReportLogprobs(raw, kDeviceTopTokens, logits, candidates, report);
  token.logprob = report.logprob;
  for (size_t i = 0; i < report.top_logprobs.size(); ++i) {
    token.top_tokens[i] = report.top_logprobs[i].token;
    token.top_logprobs[i] = report.top_logprobs[i].logprob;
  }
  return token;
}

DeviceWalk DeviceTwin::Walk(const DevicePass& pass,
                            const DeviceSession& session,
                            const DeviceToken* tokens) {
  DeviceWalk walk;
  int32_t row = session.first_row;
  while (row >= 0 && walk.length < session.commit_count) {
    Move(ScratchSlot(row),
         pass.commit_slots.data[session.commit_begin + walk.length]);
    ++walk.length;
    walk.last_row = row;
    const int32_t output = pass.rows.data[row].output;
    int32_t next = -1;
    const int32_t end = session.first_row + session.rows;
    for (int32_t c = row + 1; c < end && output >= 0 && next < 0; ++c) {
      const DeviceRow& child = pass.rows.data[c];
      if (child.parent == row && child.token == tokens[output].token) next = c;
    }
    row = next;
  }
  return walk;
}

void DeviceTwin::Move(int64_t from, int64_t to) {
  for (int32_t layer = 0; layer < shape_.layers; ++layer) {
    for (std::vector<float>* kv : {&keys_, &values_}) {
      std::copy_n(Slot(*kv, layer, from), kv_width_, Slot(*kv, layer, to));
    }
  }
}

DeviceStatus DeviceTwin::Commit(const int32_t* rows, const int32_t* slots,
                                int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    if (rows[i] < 0 || rows[i] >= last_rows_ || slots[i] < 0 ||
        slots[i] >= pages_ * kDevicePageTokens) {
      return Error(absl::StatusCode::kInternal, "commit of row %d to slot %d",
                   rows[i], slots[i]);
    }
    Move(ScratchSlot(rows[i]), slots[i]);
  }
  return {};
}

DeviceStatus DeviceTwin::Logits(int32_t output, float* logits) {
  if (output < 0 || output >= static_cast<int32_t>(logits_.size())) {
    return Error(absl::StatusCode::kInternal, "no output %d", output);
  }
  std::copy(logits_[output].begin(), logits_[output].end(), logits);
  return {};
}

}  // namespace

absl::StatusOr<DeviceEnginePtr> MakeDeviceTwin(const DeviceShape& shape,
                                               const DeviceOptions& options) {
  // Floats in place of 16-bit elements; the figure is the device's.
  const int64_t page_bytes = int64_t{4} * kDevicePageTokens * shape.layers *
                             shape.kv_heads * shape.head_dim;
  int64_t pages = options.pages;
  if (pages == 0) {
    pages = kDeviceTwinKvBytes / page_bytes;
    if (options.max_pages > 0) pages = std::min(pages, options.max_pages);
  }
  if (pages < 1 || pages * page_bytes > kDeviceTwinKvBytes) {
    return StatusFromDevice(
        Error(absl::StatusCode::kResourceExhausted,
              "%lld pages of %lld bytes, want at most %lld bytes",
              static_cast<long long>(pages), static_cast<long long>(page_bytes),
              static_cast<long long>(kDeviceTwinKvBytes)),
        "device twin");
  }
  return DeviceEnginePtr(new DeviceTwin(shape, options, pages),
                         [](DeviceEngine* engine) { delete engine; });
}

}  // namespace foretoken
