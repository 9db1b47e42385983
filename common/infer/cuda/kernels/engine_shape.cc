#include "common/infer/cuda/kernels/engine_shape.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "common/infer/cuda/kernels/device_status.h"

namespace foretoken::device {
namespace {

// Memory left free by default for CUDA graphs, the driver and other processes.
constexpr int64_t kReserveBytes = int64_t{1} << 30;
constexpr uint64_t kMinSlabQueries = 128;

DeviceStatus Check(const DeviceShape& s, const DeviceOptions& options) {
  const auto no_kernel = [](const char* what, int64_t value) {
    return MakeStatus(kUnimplemented, "%s %lld has no GPU kernel", what,
                      static_cast<long long>(value));
  };
  // Bounds that the kernels' index arithmetic in 32 bits needs.
  struct Bounds {
    const char* what;
    int64_t value, min, max;
  };
  for (const Bounds& b :
       {Bounds{"d_model", s.d_model, 1, 1 << 16},
        Bounds{"layers", s.layers, 1, 1024}, Bounds{"heads", s.heads, 1, 1024},
        Bounds{"kv_heads", s.kv_heads, 1, 1024},
        Bounds{"head_dim", s.head_dim, 2, kMaxHeadDim},
        Bounds{"d_ff", s.d_ff, 1, 1 << 20},
        Bounds{"vocabulary", s.vocab, 1, 1 << 22},
        Bounds{"max_positions", s.max_positions, 1, 1 << 24}}) {
    if (b.value < b.min || b.value > b.max) return no_kernel(b.what, b.value);
  }
  if (s.heads % s.kv_heads != 0) return no_kernel("kv_heads", s.kv_heads);
  // Rotary pairs.
  if (s.head_dim % 2 != 0) return no_kernel("head_dim", s.head_dim);
  for (const Bounds& b :
       {Bounds{"weight type", static_cast<int64_t>(options.type), 0, 1},
        Bounds{"max_rows", options.max_rows, 1, (1 << 16) - 1},
        Bounds{"max_sessions", options.max_sessions, 1, 1 << 20},
        Bounds{"attention_bytes", options.attention_bytes, 1,
               int64_t{1} << 40}}) {
    if (b.value >= b.min && b.value <= b.max) continue;
    return MakeStatus(kInvalidArgument, "%s %lld is out of bounds", b.what,
                      static_cast<long long>(b.value));
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
  // Rounded up: at most twice the bytes asked for, and as many queries of the
  // longest context as a tier of rows has, not one fewer.
  // Values and two softmax numbers in fp32, for each KV head and chunk.
  const int64_t query_bytes =
      int64_t{shape.kv_heads} * s.max_chunks * (s.padded_head_dim + 2) * 4;
  // No more than one pass can have.
  const uint64_t slab = std::min(
      std::max(kMinSlabQueries, std::bit_ceil(static_cast<uint64_t>(
                                    options.attention_bytes / query_bytes))),
      std::bit_ceil(static_cast<uint64_t>(s.max_rows) * s.group));
  s.partial_vectors =
      static_cast<int64_t>(slab + kSlabMargin) * shape.kv_heads * s.max_chunks;
  // The KV of a pass's own rows lies in pages after those of the cache.
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
  // `most` pages fit into the free memory; the default is half of it.
  const int64_t most = fit(free_bytes - kReserveBytes);
  int64_t pages = std::min(most, fit(free_bytes / 2));
  if (options.max_pages > 0) pages = std::min(pages, options.max_pages);
  return std::max(pages, std::min(most, options.min_pages));
}

int32_t EngineShape::SlabQueries(int chunks) const {
  const int64_t fit =
      partial_vectors / (int64_t{model.kv_heads} * chunks) - kSlabMargin;
  return static_cast<int32_t>(
      std::min(std::bit_floor(static_cast<uint64_t>(fit)),
               std::bit_ceil(static_cast<uint64_t>(max_rows) * group)));
}

int64_t EngineShape::partial_sums() const {
  // One buffer serves the three products in turn, so the largest decides.
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

}  // namespace foretoken::device
