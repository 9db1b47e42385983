// CpuForward: the transformer itself, one pass over planned rows.
//
// Rounding points: the residual stream, queries, scores, softmax and sums are
// fp32; the inputs of a matrix product are rounded to what its matrix takes
// (int8 blocks or super-blocks if it is quantised, else the model's precision),
// and K and V, as
// soon as they are known, to the KV type. Each output is one chain of
// operations in an order that the model's sizes fix (ops.h), whatever the rows,
// their grouping and the threads.
//
// Owned by one thread; works on the pool's threads.
#ifndef FORETOKEN_COMMON_INFER_CPU_CPU_FORWARD_H_
#define FORETOKEN_COMMON_INFER_CPU_CPU_FORWARD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/huge_buffer.h"
#include "common/base/thread_pool.h"
#include "common/infer/cpu/cpu_model.h"
#include "common/infer/cpu/kv_store.h"
#include "common/infer/cpu/ops.h"
#include "common/infer/pass_plan.h"
#include "common/infer/rotary.h"

namespace foretoken {

// [rows, columns] of any ActivationType, rows padded so that equal columns of
// neighbouring rows do not fall into one cache set.
class RowBuffer {
 public:
  static absl::StatusOr<RowBuffer> Create(int64_t rows, int64_t columns,
                                          int64_t element_bytes);
  uint8_t* row(int64_t r) const { return data_.data() + r * stride_; }
  float* f32(int64_t r) const { return reinterpret_cast<float*>(row(r)); }
  int64_t stride() const { return stride_; }  // bytes

 private:
  int64_t stride_ = 0;
  HugeBuffer data_;
};

class CpuForward {
 public:
  // Logits are computed for this many rows at a time.
  static constexpr int32_t kLogitRows = 64;

  // `model`, `ops`, `store` and `pool` outlive the object.
  static absl::StatusOr<std::unique_ptr<CpuForward>> Create(
      const CpuModel& model, const CpuOps& ops, KvStore& store,
      ThreadPool& pool, int32_t max_rows);

  // Runs every layer. Afterwards the rows' K and V lie in the store's scratch
  // and plan.output_rows have their final hidden state.
  absl::Status Run(const PassPlan& plan);

  // Logits of up to kLogitRows consecutive output rows of the last Run, from
  // `first` on: logits(i) is that of output row first + i, [vocab_size],
  // -infinity for ids that the head leaves out. Valid until the next call.
  void ComputeLogits(int64_t first, int64_t count);
  absl::Span<const float> logits(int64_t i) const;

  // Final hidden states of `count` rows of the last Run from `first` on, output
  // rows or not, to `states`, [count, d_model].
  void ComputeStates(int64_t first, int64_t count, float* states);

 private:
  struct Thread {
    std::vector<float> tile;    // [2][kRowTile][64]
    std::vector<float> row;     // the widest row
    std::vector<float> states;  // attention: [queries][2 + head_dim]
    std::vector<const float*> query;
    std::vector<int32_t> key_count;
    std::vector<float*> state;
  };
  struct AttendTask {
    int32_t session;
    int32_t first_row;  // global
    int32_t rows;
  };

  CpuForward(const CpuModel& model, const CpuOps& ops, KvStore& store,
             ThreadPool& pool);
  absl::Status Allocate(int32_t max_rows);

  // Calls body(row, thread) for every row, a few rows a task.
  void ForRows(int64_t rows, absl::FunctionRef<void(int64_t, int)> body);
  void LoadRows(const PassPlan& plan);
  void Layer(const PassPlan& plan, int32_t index);
  void PlanAttention(const PassPlan& plan);

  // out = round(norm(hidden_[r])) for the rows; `source` maps row to hidden
  // row.
  void NormRows(int64_t rows, const std::vector<float>& weight,
                absl::Span<const int32_t> source, ActivationType type,
                RowBuffer& out);
  void StoreRounded(const float* values, int64_t n, ActivationType type,
                    uint8_t* out) const;

  // body(row, block, tile row) for every row and block of x * w, on any thread.
  void Multiply(const PackedMatrix& w, const RowBuffer& x, int64_t rows,
                absl::FunctionRef<void(int64_t, int64_t, float*)> body);
  void MultiplyTile(const PackedMatrix& w, int64_t block, const RowBuffer& x,
                    int64_t first_row, int64_t rows, float* tile) const;
  void AddToHidden(const PackedMatrix& w, const std::vector<float>& bias,
                   const RowBuffer& x, int64_t rows);
  void GateUp(const CpuLayer& layer, int64_t rows);
  // out = round(values[r]) for the rows, whole ones: super-blocks of int8 span
  // the columns of several tasks.
  void RoundRows(int64_t rows, const RowBuffer& values, int64_t n,
                 ActivationType type, RowBuffer& out);
  // One head of a row's K or V to the store's layout.
  void StoreKv(const float* head, uint8_t* out) const;
  void RotateAndStore(const CpuLayer& layer, int32_t index, int64_t row);
  void Attend(const PassPlan& plan, int32_t layer, const AttendTask& task,
              int32_t kv_head, Thread& thread);

  const CpuModel& model_;
  const CpuOps& ops_;
  const bool few_rows_fetch_;
  KvStore& store_;
  ThreadPool& pool_;
  const Rotary rotary_;
  std::vector<Thread> threads_;
  std::vector<AttendTask> attend_tasks_;

  RowBuffer hidden_;     // [rows, d_model] fp32, the residual stream
  RowBuffer x_;          // [rows, d_model], input of the next product
  RowBuffer qkv_;        // [rows, heads * head_dim] fp32; attention may
                         // replace its queries
  RowBuffer attention_;  // [rows, n_heads * head_dim]
  RowBuffer gated_;      // [rows, d_ff] fp32, before super-blocks of int8
  RowBuffer activated_;  // [rows, d_ff]
  RowBuffer angles_;     // [rows, 2 * half] fp32: cosines, sines
  RowBuffer final_;      // [output rows, d_model]
  RowBuffer logits_;     // [kLogitRows, vocab_size] fp32
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_CPU_FORWARD_H_
