#include "common/infer/cuda/kernels/engine_shape.h"

#include <algorithm>
#include <limits>

#include "common/infer/cuda/kernels/device_status.h"

namespace foretoken {
namespace device {
namespace {

// Partial results of attention: room for this many bytes, so that a wide pass
// goes through in slabs.
constexpr int64_t kPartialBytes = int64_t{128} << 20;
// Left free by default: for CUDA graphs, the driver, others.
constexpr int64_t kReserveBytes = int64_t{1} << 30;
constexpr int64_t kMinSlabTasks = 8;
constexpr int64_t kMaxSlabTasks = 1024;

DeviceStatus Check(const DeviceShape& s, const DeviceOptions& options) {
  const auto bad = [](const char* what, int64_t value) {
    return MakeStatus(kUnimplemented, "%s %lld has no GPU kernel", what,
                      static_cast<long long>(value));
  };
  const auto bad_option = [](const char* what, int64_t value) {
    return MakeStatus(kInvalidArgument, "%s %lld is out of bounds", what,
                      static_cast<long long>(value));
  };
  if (s.d_model < 1 || s.d_model > 1 << 16) return bad("d_model", s.d_model);
  if (s.layers < 1 || s.layers > 1024) return bad("layers", s.layers);
  if (s.heads < 1 || s.heads > 1024) return bad("heads", s.heads);
  if (s.kv_heads < 1 || s.heads % s.kv_heads != 0) {
    return bad("kv_heads", s.kv_heads);
  }
  if (s.head_dim < 2 || s.head_dim > kMaxHeadDim || s.head_dim % 2 != 0) {
    return bad("head_dim", s.head_dim);
  }
  if (s.d_ff < 1 || s.d_ff > 1 << 20) return bad("d_ff", s.d_ff);
  if (s.vocab < 1 || s.vocab > 1 << 22) return bad("vocabulary", s.vocab);
  if (s.max_positions < 1 || s.max_positions > 1 << 24) {
    return bad("max_positions", s.max_positions);
  }
  if (options.type != DeviceType::kBFloat16 &&
      options.type != DeviceType::kFloat16) {
    return bad_option("weight type", static_cast<int64_t>(options.type));
  }
  if (options.max_rows < 1 || options.max_rows >= 1 << 16) {
    return bad_option("max_rows", options.max_rows);
  }
  if (options.max_sessions < 1 || options.max_sessions > 1 << 20) {
    return bad_option("max_sessions", options.max_sessions);
  }
  return DeviceStatus();
}

}  // namespace

DeviceStatus EngineShape::Create(const DeviceShape& shape,
                                 const DeviceOptions& options,
                                 EngineShape* out) {
  FORETOKEN_DEVICE_RETURN_IF_ERROR(Check(shape, options));
  EngineShape& s = *out;
  s.model = shape;
  s.type = options.type;
  s.max_rows = options.max_rows;
  s.max_sessions = options.max_sessions;
  s.padded_rows = RoundUp(options.max_rows, kGemmRowPad);
  s.group = shape.heads / shape.kv_heads;
  s.padded_head_dim = PaddedHeadDim(shape.head_dim);
  s.width = static_cast<int32_t>(PaddedFeatures(shape.d_model));
  const int64_t attention = int64_t{shape.heads} * shape.head_dim;
  s.qkv = MakeMatrix(s.qkv_features(), shape.d_model, true);
  s.attention_output = MakeMatrix(shape.d_model, attention, true);
  s.down = MakeMatrix(shape.d_model, shape.d_ff, true);
  s.gate_up = MakeMatrix(2 * RoundUp(shape.d_ff, 8), shape.d_model, false);
  s.head = MakeMatrix(shape.vocab, shape.d_model, false);
  s.max_blocks = static_cast<int32_t>(
      RoundUp(shape.max_positions, kDevicePageTokens) / kDevicePageTokens);
  s.max_chunks = ChunkCount(s.max_blocks);
  const int64_t task_bytes = int64_t{kTaskQueries} * shape.kv_heads *
                             s.max_chunks * (s.padded_head_dim + 2) * 4;
  const int64_t most = std::min<int64_t>(
      kMaxSlabTasks, TaskCount(s.max_rows, s.group) + s.max_sessions);
  s.slab_tasks = static_cast<int32_t>(std::min(
      most,
      std::clamp(kPartialBytes / task_bytes, kMinSlabTasks, kMaxSlabTasks)));
  s.scratch_pages = RoundUp(s.max_rows, kDevicePageTokens) / kDevicePageTokens;
  return DeviceStatus();
}

int64_t EngineShape::DefaultPages(int64_t free_bytes,
                                  const DeviceOptions& options) const {
  // Slots are 32-bit.
  const int64_t most_slots =
      (std::numeric_limits<int32_t>::max() - max_rows) / kDevicePageTokens - 1;
  const auto fit = [&](int64_t bytes) {
    return std::min(most_slots,
                    std::max<int64_t>(0, bytes) / page_bytes() - scratch_pages);
  };
  const int64_t most = fit(free_bytes - kReserveBytes);
  int64_t pages = std::min(most, fit(free_bytes / 2));
  if (options.max_pages > 0) pages = std::min(pages, options.max_pages);
  return std::max(pages, std::min(most, options.min_pages));
}

int64_t EngineShape::partial_sums() const {
  int64_t most = 0;
  for (const MatrixShape* m : {&qkv, &attention_output, &down}) {
    most = std::max(most, m->groups * m->features);
  }
  return most * padded_rows;
}

int64_t EngineShape::weight_bytes() const {
  const int64_t layer = qkv.elements() + attention_output.elements() +
                        gate_up.elements() + down.elements();
  return 2 * (layer * model.layers + head.elements());
}

}  // namespace device
}  // namespace foretoken
