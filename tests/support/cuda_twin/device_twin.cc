#include "tests/support/cuda_twin/device_twin.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/infer/cuda/kernels/attention_index.h"
#include "common/infer/cuda/kernels/device_status.h"
#include "common/infer/cuda/kernels/engine_shape.h"
#include "common/infer/cuda/kernels/gemm_index.h"
#include "common/infer/cuda/kernels/pass_layout.h"
#include "common/infer/cuda/status_from_device.h"
#include "tests/support/cuda_twin/twin_math.h"
#include "tests/support/cuda_twin/twin_sampler.h"
#include "tests/support/cuda_twin/twin_weights.h"

namespace foretoken {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

using device::MakeStatus;
using device::PassHeader;

class DeviceTwin : public DeviceEngine {
 public:
  DeviceTwin(const device::EngineShape& shape, const DeviceOptions& options,
             int64_t pages)
      : engine_shape_(shape),
        shape_(shape.model),
        options_(options),
        pages_(pages),
        kv_{pages + shape.scratch_pages, shape_.kv_heads,
            shape.padded_head_dim},
        weights_(shape_, options.type) {
    keys_.resize(device::KvAt(kv_, shape_.layers, 0, 0));
    values_.resize(keys_.size());
  }

  int64_t pages() const override { return pages_; }
  int64_t weight_bytes_per_pass() const override {
    return engine_shape_.weight_bytes();
  }
  const char* name() const override { return "twin"; }
  const char* numerics() const override { return "twin;kernel=1"; }

  DeviceStatus Upload(DeviceTensor tensor, int32_t layer, const void* data,
                      int64_t rows, int64_t cols) override {
    return weights_.Add(tensor, layer, data, rows, cols);
  }
  DeviceStatus FinishWeights(const float* cosines, const float* sines) override;
  DeviceStatus Forward(const DevicePass& pass, DeviceToken* tokens,
                       DeviceWalk* walks, HostWork& meanwhile) override;
  DeviceStatus CopyKv(const int32_t* from, const int32_t* to,
                      int32_t count) override;
  DeviceStatus Logits(int32_t output, float* logits) override;
  DeviceStatus States(int32_t first, int32_t count, float* states) override;
  DeviceStatus MeasureCopyBandwidth(double* bytes_per_second) override {
    *bytes_per_second = 0.0;
    return {};
  }

 private:
  using Row = std::vector<float>;

  const Row& Weights(DeviceTensor tensor, int32_t layer = 0) const {
    return weights_.Rows(tensor, layer);
  }
  int64_t ScratchSlot(int64_t row) const {
    return pages_ * kDevicePageTokens + row;
  }
  int64_t At(int32_t layer, int64_t slot, int32_t kv_head) const {
    return device::KvAt(kv_, layer, slot, kv_head);
  }
  void RoundAll(Row& row) const;
  const device::MatrixShape& MatrixOf(DeviceTensor w) const;
  // x * w, group of K by group as the device does it, + bias, which may be
  // empty.
  Row Product(const Row& x, DeviceTensor w, const Row& bias,
              int32_t layer = 0) const;
  void NormHeads(float* heads, int32_t count, DeviceTensor norm,
                 int32_t layer) const;

  void ProjectRow(const DeviceRow& row, int64_t index, int32_t layer,
                  const Row& hidden, Row& query);
  Row Attend(const PassHeader& pass, const DeviceRow& row, int32_t layer,
             const Row& query) const;
  void FeedForward(int32_t layer, Row& hidden) const;
  void ComputeLogits(const PassHeader& pass, const std::vector<Row>& hidden);
  DeviceWalk Walk(const PassHeader& pass, const DeviceSession& session,
                  const DeviceToken* tokens);
  void Run(const PassHeader& pass, DeviceToken* tokens, DeviceWalk* walks);
  void Move(int64_t from, int64_t to);

  const device::EngineShape engine_shape_;
  const DeviceShape shape_;
  const DeviceOptions options_;
  const int64_t pages_;
  const device::KvShape kv_;
  twin::TwinWeights weights_;
  const Row none_;
  Row cosines_, sines_;
  bool ready_ = false;
  std::vector<float> keys_, values_;  // by KvAt
  struct alignas(16) Sixteen {
    char bytes[16];
  };
  std::vector<Sixteen> travelled_;  // the pass as it lies on the device
  std::vector<Row> logits_;         // by output of the last pass
  std::vector<Row> hidden_;         // by row of the last pass
  int32_t last_rows_ = 0;
};

DeviceStatus DeviceTwin::FinishWeights(const float* cosines,
                                       const float* sines) {
  FORETOKEN_DEVICE_RETURN_IF_ERROR(weights_.CheckComplete());
  const int64_t size = int64_t{shape_.max_positions} * (shape_.head_dim / 2);
  cosines_.assign(cosines, cosines + size);
  sines_.assign(sines, sines + size);
  ready_ = true;
  return {};
}

void DeviceTwin::RoundAll(Row& row) const {
  for (float& value : row) value = twin::Round(options_.type, value);
}

const device::MatrixShape& DeviceTwin::MatrixOf(DeviceTensor w) const {
  switch (w) {
    case DeviceTensor::kQuery:
    case DeviceTensor::kKey:
    case DeviceTensor::kValue:
      return engine_shape_.qkv;
    case DeviceTensor::kAttentionOutput:
      return engine_shape_.attention_output;
    case DeviceTensor::kDown:
      return engine_shape_.down;
    case DeviceTensor::kGate:
    case DeviceTensor::kUp:
      return engine_shape_.gate_up;
    default:
      return engine_shape_.head;
  }
}

DeviceTwin::Row DeviceTwin::Product(const Row& x, DeviceTensor w,
                                    const Row& bias, int32_t layer) const {
  const twin::TensorSize size = twin::SizeOf(shape_, w);
  const device::MatrixShape& matrix = MatrixOf(w);
  const int64_t steps = matrix.k / device::kGemmKStep;
  const Row& weights = weights_.Matrix(w, layer);
  Row out(size.rows, 0.0f);
  for (int group = 0; group < matrix.groups; ++group) {
    const auto bound = [&](int g) {
      const int64_t step = g < matrix.groups
                               ? device::GroupBegin(steps, matrix.groups, g)
                               : steps;
      return std::min(step * device::kGemmKStep, size.cols);
    };
    const int64_t begin = bound(group);
    twin::AddProduct(x.data() + begin, weights.data() + begin * size.rows,
                     size.rows, bound(group + 1) - begin, out.data());
  }
  for (size_t i = 0; i < bias.size(); ++i) out[i] += bias[i];
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

DeviceStatus DeviceTwin::Forward(const DevicePass& pass, DeviceToken* tokens,
                                 DeviceWalk* walks, HostWork& meanwhile) {
  if (!ready_) {
    return MakeStatus(device::kFailedPrecondition, "the weights are missing");
  }
  FORETOKEN_DEVICE_RETURN_IF_ERROR(
      device::CheckPass(pass, engine_shape_, pages_));
  // As it travels to the device.
  const device::PassLayout layout(pass, engine_shape_);
  travelled_.resize((layout.bytes + 15) / 16);
  layout.Write(pass, engine_shape_, travelled_.data());
  meanwhile.Run();
  Run(*reinterpret_cast<const PassHeader*>(travelled_.data()), tokens, walks);
  return {};
}

void DeviceTwin::Run(const PassHeader& pass, DeviceToken* tokens,
                     DeviceWalk* walks) {
  last_rows_ = pass.rows;
  std::vector<Row> hidden(pass.rows), query(pass.rows);
  for (int32_t r = 0; r < pass.rows; ++r) {
    const float* from =
        &Weights(DeviceTensor::kEmbedding)[int64_t{pass.row()[r].token} *
                                           shape_.d_model];
    hidden[r].assign(from, from + shape_.d_model);
  }
  for (int32_t layer = 0; layer < shape_.layers; ++layer) {
    for (int32_t r = 0; r < pass.rows; ++r) {
      ProjectRow(pass.row()[r], r, layer, hidden[r], query[r]);
    }
    for (int32_t r = 0; r < pass.rows; ++r) {
      Row attended = Attend(pass, pass.row()[r], layer, query[r]);
      RoundAll(attended);
      const Row out =
          Product(attended, DeviceTensor::kAttentionOutput,
                  Weights(DeviceTensor::kAttentionOutputBias, layer), layer);
      for (size_t i = 0; i < out.size(); ++i) hidden[r][i] += out[i];
      FeedForward(layer, hidden[r]);
    }
  }
  ComputeLogits(pass, hidden);
  for (int32_t i = 0; i < pass.outputs; ++i) {
    tokens[i] = twin::Sample(pass, i, logits_[i]);
  }
  for (int32_t s = 0; s < pass.sessions; ++s) {
    walks[s] = Walk(pass, pass.session()[s], tokens);
  }
  hidden_ = std::move(hidden);
}

// Norm, Q, K and V; K and V go to the row's scratch slot.
void DeviceTwin::ProjectRow(const DeviceRow& row, int64_t index, int32_t layer,
                            const Row& hidden, Row& query) {
  using enum DeviceTensor;
  Row x(hidden.size());
  twin::RmsNorm(hidden.data(), Weights(kAttentionNorm, layer).data(),
                shape_.d_model, shape_.rms_norm_eps, x.data());
  RoundAll(x);
  query = Product(x, kQuery, Weights(kQueryBias, layer), layer);
  Row key = Product(x, kKey, Weights(kKeyBias, layer), layer);
  Row value = Product(x, kValue, Weights(kValueBias, layer), layer);
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
  for (int32_t h = 0; h < shape_.kv_heads; ++h) {
    const int64_t at = At(layer, ScratchSlot(index), h);
    std::copy_n(&key[h * shape_.head_dim], shape_.head_dim, &keys_[at]);
    std::copy_n(&value[h * shape_.head_dim], shape_.head_dim, &values_[at]);
  }
}

// Whole pages of the session, then the row's tiles, in order of position: block
// by block into chunks, chunk by chunk into the result.
DeviceTwin::Row DeviceTwin::Attend(const PassHeader& pass, const DeviceRow& row,
                                   int32_t layer, const Row& query) const {
  const DeviceSession& session = pass.session()[row.session];
  const int32_t head_dim = shape_.head_dim;
  const int32_t blocks = session.page_count + row.tile_count;
  const auto slot_of = [&](int32_t block, int32_t key) -> int64_t {
    if (block < session.page_count) {
      return int64_t{pass.page()[session.page_begin + block]} *
                 kDevicePageTokens +
             key;
    }
    const int32_t tile =
        pass.row_tile()[row.tile_begin + block - session.page_count];
    return pass.tile()[tile].slots[key];
  };
  Row out(query.size(), 0.0f);
  for (int32_t h = 0; h < shape_.heads; ++h) {
    const int32_t kv_head = h / engine_shape_.group;
    twin::Attention all{kMinusInfinity, 0.0f, &out[h * head_dim]};
    for (int32_t chunk = 0; chunk < device::ChunkCount(blocks); ++chunk) {
      Row values(head_dim, 0.0f);
      twin::Attention part{kMinusInfinity, 0.0f, values.data()};
      const int32_t end = std::min(device::ChunkBegin(chunk + 1), blocks);
      for (int32_t b = device::ChunkBegin(chunk); b < end; ++b) {
        const float* keys_of[kDevicePageTokens];
        const float* values_of[kDevicePageTokens];
        const int32_t count =
            b + 1 == blocks ? row.last_keys : kDevicePageTokens;
        for (int32_t j = 0; j < count; ++j) {
          const int64_t at = At(layer, slot_of(b, j), kv_head);
          keys_of[j] = &keys_[at];
          values_of[j] = &values_[at];
        }
        twin::MergeBlock(&query[h * head_dim], keys_of, values_of, count,
                         head_dim, part);
      }
      twin::MergeChunk(part, head_dim, all);
    }
    for (int32_t d = 0; d < head_dim; ++d) all.values[d] /= all.sum;
  }
  return out;
}

void DeviceTwin::FeedForward(int32_t layer, Row& hidden) const {
  using enum DeviceTensor;
  Row x(hidden.size());
  twin::RmsNorm(hidden.data(), Weights(kFeedForwardNorm, layer).data(),
                shape_.d_model, shape_.rms_norm_eps, x.data());
  RoundAll(x);
  Row gate = Product(x, kGate, Weights(kGateBias, layer), layer);
  const Row up = Product(x, kUp, Weights(kUpBias, layer), layer);
  for (size_t i = 0; i < gate.size(); ++i) {
    gate[i] = twin::Silu(gate[i]) * up[i];
  }
  RoundAll(gate);
  const Row out = Product(gate, kDown, Weights(kDownBias, layer), layer);
  for (size_t i = 0; i < out.size(); ++i) hidden[i] += out[i];
}

void DeviceTwin::ComputeLogits(const PassHeader& pass,
                               const std::vector<Row>& hidden) {
  using enum DeviceTensor;
  logits_.resize(pass.outputs);
  Row x(shape_.d_model);
  for (int32_t i = 0; i < pass.outputs; ++i) {
    const Row& from = hidden[pass.output()[i].row];
    twin::RmsNorm(from.data(), Weights(kFinalNorm).data(), shape_.d_model,
                  shape_.rms_norm_eps, x.data());
    RoundAll(x);
    logits_[i] =
        Product(x, shape_.tied_embeddings ? kEmbedding : kOutput, none_);
  }
}

DeviceWalk DeviceTwin::Walk(const PassHeader& pass,
                            const DeviceSession& session,
                            const DeviceToken* tokens) {
  DeviceWalk walk;
  int32_t row = session.first_row;
  while (row >= 0 && walk.length < session.commit_count) {
    Move(ScratchSlot(row),
         pass.commit_slot()[session.commit_begin + walk.length]);
    ++walk.length;
    walk.last_row = row;
    const int32_t output = pass.row()[row].output;
    int32_t next = -1;
    const int32_t end = session.first_row + session.rows;
    for (int32_t c = row + 1; c < end && output >= 0 && next < 0; ++c) {
      const DeviceRow& child = pass.row()[c];
      if (child.parent == row && child.token == tokens[output].token) next = c;
    }
    row = next;
  }
  return walk;
}

void DeviceTwin::Move(int64_t from, int64_t to) {
  for (int32_t layer = 0; layer < shape_.layers; ++layer) {
    for (int32_t h = 0; h < shape_.kv_heads; ++h) {
      for (std::vector<float>* kv : {&keys_, &values_}) {
        std::copy_n(&(*kv)[At(layer, from, h)], kv_.padded_head_dim,
                    &(*kv)[At(layer, to, h)]);
      }
    }
  }
}

DeviceStatus DeviceTwin::CopyKv(const int32_t* from, const int32_t* to,
                                int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    if (from[i] < 0 || from[i] >= ScratchSlot(last_rows_) || to[i] < 0 ||
        to[i] >= ScratchSlot(0)) {
      return MakeStatus(device::kInternal, "copy of KV: slot %d to slot %d",
                        from[i], to[i]);
    }
    Move(from[i], to[i]);
  }
  return {};
}

DeviceStatus DeviceTwin::Logits(int32_t output, float* logits) {
  if (output < 0 || output >= static_cast<int32_t>(logits_.size())) {
    return MakeStatus(device::kInternal, "no output %d", output);
  }
  std::copy(logits_[output].begin(), logits_[output].end(), logits);
  return {};
}

DeviceStatus DeviceTwin::States(int32_t first, int32_t count, float* states) {
  if (first < 0 || count < 0 || count > last_rows_ - first) {
    return MakeStatus(device::kInternal, "no rows %d..%d", first,
                      first + count - 1);
  }
  for (int32_t r = 0; r < count; ++r) {
    twin::RmsNorm(hidden_[first + r].data(),
                  Weights(DeviceTensor::kFinalNorm).data(), shape_.d_model,
                  shape_.rms_norm_eps, states + int64_t{r} * shape_.d_model);
  }
  return {};
}

}  // namespace

absl::StatusOr<DeviceEnginePtr> MakeDeviceTwin(const DeviceShape& shape,
                                               const DeviceOptions& options) {
  device::EngineShape engine_shape;
  FORETOKEN_RETURN_IF_ERROR(StatusFromDevice(
      device::EngineShape::Create(shape, options, &engine_shape),
      "device twin"));
  const int64_t page_bytes = engine_shape.page_bytes();
  int64_t pages = options.pages;
  if (pages == 0) {
    pages = kDeviceTwinKvBytes / page_bytes;
    if (options.max_pages > 0) pages = std::min(pages, options.max_pages);
  }
  if (pages < 1 || pages * page_bytes > kDeviceTwinKvBytes) {
    return StatusFromDevice(
        MakeStatus(device::kResourceExhausted,
                   "%lld pages of %lld bytes, want at most %lld bytes",
                   static_cast<long long>(pages),
                   static_cast<long long>(page_bytes),
                   static_cast<long long>(kDeviceTwinKvBytes)),
        "device twin");
  }
  return DeviceEnginePtr(new DeviceTwin(engine_shape, options, pages),
                         [](DeviceEngine* engine) { delete engine; });
}

}  // namespace foretoken
