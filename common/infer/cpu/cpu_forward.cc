#include "common/infer/cpu/cpu_forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/infer/cpu/cpu_isa.h"

namespace foretoken {
namespace {

// Rows of one tile of a matrix product: 64 KiB of sums, which stay in L2 beside
// the block of weights.
constexpr int64_t kRowTile = 256;
// Rows of one task where work is by row.
constexpr int64_t kRowsPerTask = 4;
// Queries of one attention task: they share each block of keys that is read.
constexpr int32_t kQueriesPerTask = 64;

void AddBias(const std::vector<float>& bias, int64_t block, const CpuOps& ops,
             float* tile_row) {
  // A matrix is padded to whole blocks; its bias is, too.
  if (bias.empty()) return;
  ops.add(tile_row, bias.data() + block * kGemmColumns, kGemmColumns);
}

}  // namespace

absl::StatusOr<RowBuffer> RowBuffer::Create(int64_t rows, int64_t columns,
                                            int64_t element_bytes) {
  RowBuffer buffer;
  // One cache line more than a power of two: rows at equal offsets would
  // compete for the same sets of the cache.
  buffer.stride_ = PadTo(columns * element_bytes, 64) + 64;
  FORETOKEN_ASSIGN_OR_RETURN(buffer.data_,
                             HugeBuffer::Allocate(rows * buffer.stride_));
  return buffer;
}

CpuForward::CpuForward(const CpuModel& model, const CpuOps& ops, KvStore& store,
                       ThreadPool& pool)
    : model_(model),
      ops_(ops),
      few_rows_fetch_(FewRowsFetchAhead()),
      store_(store),
      pool_(pool),
      rotary_(model.config()) {}

absl::StatusOr<std::unique_ptr<CpuForward>> CpuForward::Create(
    const CpuModel& model, const CpuOps& ops, KvStore& store, ThreadPool& pool,
    int32_t max_rows) {
  std::unique_ptr<CpuForward> forward(new CpuForward(model, ops, store, pool));
  FORETOKEN_RETURN_IF_ERROR(forward->Allocate(max_rows));
  return forward;
}

absl::Status CpuForward::Allocate(int32_t max_rows) {
  const ModelConfig& config = model_.config();
  // Bytes of an fp32 or bf16 element. Int8 activations take 52 bytes for 32
  // elements, less than either, so that they fit the same buffers.
  const int64_t element = model_.precision() == Precision::kBFloat16 ? 2 : 4;
  // Padded columns are zero in weights and activations alike, so they add
  // nothing and kernels need no remainder loop.
  const int64_t d_model = PadTo(config.d_model, kGemmColumns);
  const int64_t heads = int64_t{config.n_heads} * model_.head_dim_padded();
  FORETOKEN_ASSIGN_OR_RETURN(hidden_, RowBuffer::Create(max_rows, d_model, 4));
  FORETOKEN_ASSIGN_OR_RETURN(x_, RowBuffer::Create(max_rows, d_model, element));
  FORETOKEN_ASSIGN_OR_RETURN(
      qkv_, RowBuffer::Create(max_rows, model_.qkv_columns().total, 4));
  FORETOKEN_ASSIGN_OR_RETURN(attention_,
                             RowBuffer::Create(max_rows, heads, element));
  FORETOKEN_ASSIGN_OR_RETURN(
      activated_, RowBuffer::Create(max_rows, model_.d_ff_padded(), element));
  // A super-block of 256 spans several tiles of 64 columns, so the row has to
  // be whole before it is rounded.
  if (std::any_of(model_.layers().begin(), model_.layers().end(),
                  [](const CpuLayer& layer) {
                    return layer.down.input() == ActivationType::kInt8Super;
                  })) {
    FORETOKEN_ASSIGN_OR_RETURN(
        gated_, RowBuffer::Create(max_rows, model_.d_ff_padded(), 4));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      angles_, RowBuffer::Create(max_rows, 2 * rotary_.half(), 4));
  FORETOKEN_ASSIGN_OR_RETURN(final_,
                             RowBuffer::Create(max_rows, d_model, element));
  const int32_t logit_rows = std::min(kLogitRows, max_rows);
  FORETOKEN_ASSIGN_OR_RETURN(
      logits_,
      RowBuffer::Create(logit_rows, PadTo(config.vocab_size, kGemmColumns), 4));
  if (!model_.head_ids().empty()) {
    // Written once: passes write the same other elements each time.
    for (int32_t r = 0; r < logit_rows; ++r) {
      std::fill_n(logits_.f32(r), config.vocab_size,
                  -std::numeric_limits<float>::infinity());
    }
  }

  const int32_t group = config.n_heads / config.n_kv_heads;
  // At least one whole group: the query heads that share a KV head are never
  // split.
  const int32_t queries = std::max(kQueriesPerTask, group);
  threads_.resize(pool_.threads());
  for (Thread& thread : threads_) {
    // Twice: the gate's tile and the up-projection's.
    thread.tile.resize(2 * kRowTile * kGemmColumns);
    thread.row.resize(std::max<int64_t>(d_model, model_.head_dim_padded()));
    // A state is the maximum, the sum and the accumulator of one query.
    thread.states.resize(int64_t{queries} * (2 + model_.head_dim_padded()));
    thread.query.resize(queries);
    thread.key_count.resize(queries);
    thread.state.resize(queries);
  }
  return absl::OkStatus();
}

absl::Status CpuForward::Run(const PassPlan& plan) {
  // The only step that may fail for lack of memory; it comes before anything is
  // computed.
  FORETOKEN_RETURN_IF_ERROR(store_.PrepareTiles(plan));
  LoadRows(plan);
  PlanAttention(plan);
  for (int32_t i = 0; i < model_.config().n_layers; ++i) Layer(plan, i);
  // Only rows with an output reach the head.
  NormRows(static_cast<int64_t>(plan.output_rows.size()), model_.final_norm(),
           plan.output_rows, model_.head().input(), final_);
  return absl::OkStatus();
}

void CpuForward::ForRows(int64_t rows,
                         absl::FunctionRef<void(int64_t, int)> body) {
  // Tasks of a few rows, so that threads do not contend for each row of a large
  // pass.
  pool_.ParallelForThreads(
      (rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t i, int thread) {
        const int64_t end = std::min(rows, (i + 1) * kRowsPerTask);
        for (int64_t r = i * kRowsPerTask; r < end; ++r) body(r, thread);
      });
}

void CpuForward::LoadRows(const PassPlan& plan) {
  ForRows(static_cast<int64_t>(plan.rows.size()), [&](int64_t r, int) {
    // Angles depend on the position alone: computed once here, used by every
    // layer and head.
    model_.CopyEmbedding(plan.rows[r].token, hidden_.f32(r));
    rotary_.Angles(plan.rows[r].position, angles_.f32(r),
                   angles_.f32(r) + rotary_.half());
  });
}

void CpuForward::PlanAttention(const PassPlan& plan) {
  const int32_t group = model_.config().n_heads / model_.config().n_kv_heads;
  const int32_t rows_per_task = std::max(1, kQueriesPerTask / group);
  attend_tasks_.clear();
  for (size_t s = 0; s < plan.sessions.size(); ++s) {
    const PlanSession& session = plan.sessions[s];
    // Rows of one session are cut into tasks of about kQueriesPerTask queries,
    // so that a long prompt uses all threads.
    for (int32_t r = 0; r < session.rows; r += rows_per_task) {
      attend_tasks_.push_back({static_cast<int32_t>(s), session.first_row + r,
                               std::min(rows_per_task, session.rows - r)});
    }
  }
}

void CpuForward::Layer(const PassPlan& plan, int32_t index) {
  const CpuLayer& layer = model_.layers()[index];
  const int32_t kv_heads = model_.config().n_kv_heads;
  const int64_t rows = static_cast<int64_t>(plan.rows.size());

  NormRows(rows, layer.attention_norm, {}, layer.qkv.input(), x_);
  Multiply(layer.qkv, x_, rows, [&](int64_t row, int64_t block, float* tile) {
    AddBias(layer.qkv_bias, block, ops_, tile);
    std::memcpy(qkv_.f32(row) + block * kGemmColumns, tile,
                kGemmColumns * sizeof(float));
  });
  // All rows are stored before any tile is gathered: a tile may hold rows of
  // other tasks.
  ForRows(rows, [&](int64_t r, int) { RotateAndStore(layer, index, r); });
  pool_.ParallelFor(
      static_cast<int64_t>(plan.tiles.size()) * kv_heads, [&](int64_t i) {
        store_.GatherTile(plan, static_cast<int32_t>(i / kv_heads), index,
                          static_cast<int32_t>(i % kv_heads));
      });
  pool_.ParallelForThreads(
      static_cast<int64_t>(attend_tasks_.size()) * kv_heads,
      [&](int64_t i, int thread) {
        Attend(plan, index, attend_tasks_[i / kv_heads],
               static_cast<int32_t>(i % kv_heads), threads_[thread]);
      });
  // Attention left fp32 values where the queries were; they are rounded as
  // whole rows now.
  if (layer.output.input() == ActivationType::kInt8Super) {
    RoundRows(rows, qkv_, layer.output.k(), layer.output.input(), attention_);
  }
  AddToHidden(layer.output, layer.output_bias, attention_, rows);

  NormRows(rows, layer.ffn_norm, {}, layer.gate_up.input(), x_);
  GateUp(layer, rows);
  AddToHidden(layer.down, layer.down_bias, activated_, rows);
}

void CpuForward::NormRows(int64_t rows, const std::vector<float>& weight,
                          absl::Span<const int32_t> source, ActivationType type,
                          RowBuffer& out) {
  const int n = model_.d_model_padded();
  ForRows(rows, [&](int64_t r, int thread) {
    // Into the thread's own row first: the output has another type.
    float* normed = threads_[thread].row.data();
    ops_.rms_norm(hidden_.f32(source.empty() ? r : source[r]), weight.data(), n,
                  model_.config().d_model, model_.config().rms_norm_eps,
                  normed);
    StoreRounded(normed, n, type, out.row(r));
  });
}

void CpuForward::StoreRounded(const float* values, int64_t n,
                              ActivationType type, uint8_t* out) const {
  const int count = static_cast<int>(n);
  switch (type) {
    case ActivationType::kFloat32:
      std::memcpy(out, values, n * sizeof(float));
      return;
    case ActivationType::kBFloat16:
      return ops_.to_bf16(values, count, reinterpret_cast<uint16_t*>(out));
    case ActivationType::kInt8:
      return ops_.to_int8(values, count, reinterpret_cast<Int8Block*>(out));
    case ActivationType::kInt8Super:
      return ops_.to_int8_super(values, count,
                                reinterpret_cast<Int8Block*>(out));
  }
}

void CpuForward::RoundRows(int64_t rows, const RowBuffer& values, int64_t n,
                           ActivationType type, RowBuffer& out) {
  ForRows(rows, [&](int64_t r, int) {
    StoreRounded(values.f32(r), n, type, out.row(r));
  });
}

void CpuForward::MultiplyTile(const PackedMatrix& w, int64_t block,
                              const RowBuffer& x, int64_t first_row,
                              int64_t rows, float* tile) const {
  GemmArgs args;
  args.x = x.row(first_row);
  args.x_stride = x.stride();
  args.weights = w.block(block);
  args.weight_bytes = w.block_bytes(block);
  args.rows = static_cast<int32_t>(rows);
  args.tile = tile;
  args.few_rows_fetch = few_rows_fetch_;
  ops_.gemm[static_cast<int>(w.type(block))](args);
}

void CpuForward::Multiply(
    const PackedMatrix& w, const RowBuffer& x, int64_t rows,
    absl::FunctionRef<void(int64_t, int64_t, float*)> body) {
  pool_.ParallelForThreads(w.blocks(), [&](int64_t block, int thread) {
    float* tile = threads_[thread].tile.data();
    // Tiles of rows: the block of weights is read from memory once and stays in
    // cache for the following tiles.
    for (int64_t first = 0; first < rows; first += kRowTile) {
      const int64_t now = std::min(kRowTile, rows - first);
      MultiplyTile(w, block, x, first, now, tile);
      // While the tile is still in cache.
      for (int64_t r = 0; r < now; ++r) {
        body(first + r, block, tile + r * kGemmColumns);
      }
    }
  });
}

void CpuForward::AddToHidden(const PackedMatrix& w,
                             const std::vector<float>& bias, const RowBuffer& x,
                             int64_t rows) {
  // Each block owns its columns of hidden_, so threads add without a lock.
  Multiply(w, x, rows, [&](int64_t row, int64_t block, float* tile) {
    AddBias(bias, block, ops_, tile);
    ops_.add(hidden_.f32(row) + block * kGemmColumns, tile, kGemmColumns);
  });
}

void CpuForward::GateUp(const CpuLayer& layer, int64_t rows) {
  const PackedMatrix& w = layer.gate_up;
  const ActivationType input = layer.down.input();
  const bool whole_rows = input == ActivationType::kInt8Super;
  // Blocks of gate and up alternate (PackGateUp), so a pair yields 64
  // columns of the product.
  pool_.ParallelForThreads(w.blocks() / 2, [&](int64_t pair, int thread) {
    float* gate = threads_[thread].tile.data();
    float* up = gate + kRowTile * kGemmColumns;
    for (int64_t first = 0; first < rows; first += kRowTile) {
      const int64_t now = std::min(kRowTile, rows - first);
      MultiplyTile(w, 2 * pair, x_, first, now, gate);
      MultiplyTile(w, 2 * pair + 1, x_, first, now, up);
      for (int64_t r = 0; r < now; ++r) {
        float* gate_row = gate + r * kGemmColumns;
        float* up_row = up + r * kGemmColumns;
        AddBias(layer.gate_up_bias, 2 * pair, ops_, gate_row);
        AddBias(layer.gate_up_bias, 2 * pair + 1, ops_, up_row);
        // Kept in fp32 until the row is whole.
        if (whole_rows) {
          ops_.swiglu(gate_row, up_row, kGemmColumns,
                      gated_.f32(first + r) + pair * kGemmColumns);
          continue;
        }
        ops_.swiglu(gate_row, up_row, kGemmColumns, gate_row);
        StoreRounded(gate_row, kGemmColumns, input,
                     activated_.row(first + r) +
                         ActivationBytes(input, pair * kGemmColumns));
      }
    }
  });
  if (whole_rows) {
    RoundRows(rows, gated_, layer.down.k(), input, activated_);
  }
}

void CpuForward::StoreKv(const float* head, uint8_t* out) const {
  const KvLayout& layout = store_.layout();
  switch (layout.type) {
    case KvType::kFloat32:
      return StoreRounded(head, layout.n, ActivationType::kFloat32, out);
    case KvType::kBFloat16:
      return StoreRounded(head, layout.n, ActivationType::kBFloat16, out);
    case KvType::kInt8:
      break;
  }
  // The scales of a head follow its values.
  float* scales = reinterpret_cast<float*>(out + layout.plain_bytes());
  for (int64_t d = 0; d < layout.n; d += kKvScaleBlock) {
    const int64_t size = std::min<int64_t>(kKvScaleBlock, layout.n - d);
    // The last block of a head may be short; zeros do not change its scale.
    float padded[kKvScaleBlock] = {};
    std::copy_n(head + d, size, padded);
    Int8Block block;
    ops_.to_int8(padded, kKvScaleBlock, &block);
    std::memcpy(out + d, block.q, size);
    scales[d / kKvScaleBlock] = block.scale;
  }
}

void CpuForward::RotateAndStore(const CpuLayer& layer, int32_t index,
                                int64_t row) {
  const ModelConfig& config = model_.config();
  const int n = model_.head_dim_padded();
  const int half = rotary_.half();
  const float* cosines = angles_.f32(row);
  const float* sines = cosines + half;
  // Folded into the query once rather than into every score.
  const float scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  const int64_t head_bytes = store_.layout().head_bytes();
  const auto rotate = [&](float* head, const std::vector<float>& norm) {
    // Models with QK norm apply it before the rotation.
    if (!norm.empty()) {
      ops_.rms_norm(head, norm.data(), n, config.head_dim, config.rms_norm_eps,
                    head);
    }
    ops_.rope(head, cosines, sines, half);
  };
  float* query = qkv_.f32(row);
  for (int32_t h = 0; h < config.n_heads; ++h, query += n) {
    rotate(query, layer.q_norm);
    ops_.scale(query, scale, n);
  }
  float* key = qkv_.f32(row) + model_.qkv_columns().keys;
  uint8_t* keys = store_.ScratchKeys(index, row);
  // Values are not rotated.
  const float* value = qkv_.f32(row) + model_.qkv_columns().values;
  uint8_t* values = store_.ScratchValues(index, row);
  for (int32_t h = 0; h < config.n_kv_heads; ++h, key += n, value += n) {
    rotate(key, layer.k_norm);
    StoreKv(key, keys + h * head_bytes);
    StoreKv(value, values + h * head_bytes);
  }
}

void CpuForward::Attend(const PassPlan& plan, int32_t layer,
                        const AttendTask& task, int32_t kv_head,
                        Thread& thread) {
  const ModelConfig& config = model_.config();
  const int n = model_.head_dim_padded();
  const int32_t group = config.n_heads / config.n_kv_heads;
  const int32_t queries = task.rows * group;
  // Row-major over (row, head of the group): queries of one row are neighbours,
  // as the ranges below need.
  for (int32_t i = 0; i < queries; ++i) {
    thread.query[i] = qkv_.f32(task.first_row + i / group) +
                      (kv_head * group + i % group) * n;
    thread.state[i] = thread.states.data() + int64_t{i} * (2 + n);
    std::fill_n(thread.state[i], 2 + n, 0.0f);
    // -inf: the first block's maximum replaces it, and exp(-inf) clears the
    // empty accumulator.
    thread.state[i][0] = -std::numeric_limits<float>::infinity();
  }
  // Queries begin..end of the task read the block at `keys`.
  const auto attend = [&](const uint8_t* keys, int32_t begin, int32_t end) {
    AttendArgs args;
    args.keys = keys;
    args.values = keys + store_.values_offset();
    args.head_dim = config.head_dim;
    args.n = n;
    args.queries = end - begin;
    args.query = thread.query.data() + begin;
    args.key_count = thread.key_count.data() + begin;
    args.state = thread.state.data() + begin;
    switch (store_.layout().type) {
      case KvType::kBFloat16:
        return ops_.attend_bf16(args);
      case KvType::kFloat32:
        return ops_.attend_fp32(args);
      case KvType::kInt8: {
        const int64_t scales = store_.scales_offset();
        args.key_scales = reinterpret_cast<const float*>(keys + scales);
        args.value_scales = reinterpret_cast<const float*>(
            keys + store_.values_offset() + scales);
        return ops_.attend_int8(args);
      }
    }
  };

  // Committed pages are whole and come first for every row; all queries of the
  // task share each of them.
  std::fill_n(thread.key_count.begin(), queries, kAttendKeys);
  for (const int32_t page : plan.sessions[task.session].pages) {
    attend(store_.PageKeys(page, layer, kv_head), 0, queries);
  }
  const PlanRow* rows = &plan.rows[task.first_row];
  // The tiles after them differ by row, since rows are paths of a tree. Rows
  // next to each other that read the same tile share it.
  for (size_t b = 0;; ++b) {
    bool any = false;
    for (int32_t r = 0; r < task.rows;) {
      if (rows[r].tiles.size() <= b) {
        ++r;
        continue;
      }
      any = true;
      const int32_t tile = rows[r].tiles[b];
      const int32_t begin = r;
      for (; r < task.rows && rows[r].tiles.size() > b &&
             rows[r].tiles[b] == tile;
           ++r) {
        // Only its last tile may be partly filled for a row; tiles before that
        // are whole.
        const bool last = rows[r].tiles.size() == b + 1;
        std::fill_n(thread.key_count.begin() + r * group, group,
                    last ? rows[r].last_keys : kAttendKeys);
      }
      attend(store_.TileKeys(tile, kv_head), begin * group, r * group);
    }
    if (!any) break;
  }

  const ActivationType input = model_.layers()[layer].output.input();
  for (int32_t i = 0; i < queries; ++i) {
    float* values = thread.state[i] + 2;
    // The softmax's denominator, applied once at the end (online softmax, as in
    // FlashAttention, arXiv:2205.14135).
    ops_.scale(values, 1.0f / thread.state[i][1], n);
    const int64_t head = kv_head * group + i % group;
    if (input == ActivationType::kInt8Super) {
      // In place of the query, which this task alone has read.
      std::memcpy(qkv_.f32(task.first_row + i / group) + head * n, values,
                  n * sizeof(float));
      continue;
    }
    StoreRounded(values, n, input,
                 attention_.row(task.first_row + i / group) +
                     ActivationBytes(input, head * n));
  }
}

void CpuForward::ComputeLogits(int64_t first, int64_t count) {
  FORETOKEN_CHECK(count >= 0 && count <= kLogitRows);
  if (count == 0) return;
  const PackedMatrix& w = model_.head();
  const absl::Span<const TokenId> ids = model_.head_ids();
  pool_.ParallelForThreads(w.blocks(), [&](int64_t block, int thread) {
    float* tile = threads_[thread].tile.data();
    MultiplyTile(w, block, final_, first, count, tile);
    // Logits of a cut head are scattered to their ids; all others keep -inf
    // from Allocate.
    const int64_t column = block * kGemmColumns;
    if (ids.empty()) {
      for (int64_t r = 0; r < count; ++r) {
        std::memcpy(logits_.f32(r) + column, tile + r * kGemmColumns,
                    kGemmColumns * sizeof(float));
      }
      return;
    }
    const auto block_ids = ids.subspan(column, kGemmColumns);
    for (int64_t r = 0; r < count; ++r) {
      float* const logits = logits_.f32(r);
      for (size_t c = 0; c < block_ids.size(); ++c) {
        logits[block_ids[c]] = tile[r * kGemmColumns + static_cast<int64_t>(c)];
      }
    }
  });
}

// The residual stream of every row is kept until the next Run.
void CpuForward::ComputeStates(int64_t first, int64_t count, float* states) {
  const int64_t d_model = model_.config().d_model;
  ForRows(count, [&](int64_t r, int thread) {
    float* const normed = threads_[thread].row.data();
    ops_.rms_norm(hidden_.f32(first + r), model_.final_norm().data(),
                  model_.d_model_padded(), model_.config().d_model,
                  model_.config().rms_norm_eps, normed);
    std::copy_n(normed, d_model, states + r * d_model);
  });
}

absl::Span<const float> CpuForward::logits(int64_t i) const {
  return absl::MakeConstSpan(logits_.f32(i), model_.config().vocab_size);
}

}  // namespace foretoken
