// Work by row between the matrix products: residual and RMSNorm, the epilogue
// of QKV. Launchers; each is asynchronous and answers the launch's error.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_NORM_ROPE_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_NORM_ROPE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "common/infer/cuda/kernels/attention_index.h"
#include "common/infer/cuda/kernels/device_support.h"
#include "common/infer/cuda/kernels/launch.h"
#include "common/infer/cuda/kernels/pass_layout.h"

namespace foretoken::device {

// Threads of a row: they fix the order of its sum of squares.
inline constexpr int kNormThreads = 512;

// The residual stream of a row becomes its embedding (`embedding` given) or
// grows by the sum of a product's groups, ascending, and its bias; then
//   out[row][k] = round(stream[k] / rms(stream) * weight[k]).
// by_output: the rows are those of the pass's outputs, and out's row is the
// index of the output.
struct NormParams {
  const PassHeader* pass = nullptr;
  float* stream = nullptr;          // [padded_rows][width]
  const void* embedding = nullptr;  // [vocab][d_model]
  const float* sums = nullptr;      // [groups][padded_rows][width]
  const float* bias = nullptr;      // [width], nullptr: none
  const float* weight = nullptr;    // [width]
  void* out = nullptr;              // activations
  int64_t padded_rows = 0;
  int32_t groups = 0, width = 0, d_model = 0;
  float eps = 0;
  bool by_output = false;
};

// `rows`: at least the pass's rows (or outputs).
cudaError_t LaunchNorm(DeviceType type, const NormParams& params, int rows,
                       const DeviceLimits& device, Launcher& launcher);

// Final hidden states in fp32, of rows `first`.. of the last pass:
//   out[i][k] = stream[k] / rms(stream) * weight[k]
// where a row without output, whose stream the last norm of the pass did not
// touch, takes in the sums and the bias of the last product first. Its bits are
// those of NormParams' before rounding.
struct StatesParams {
  NormParams norm;  // that of the pass's end, `out` aside
  int64_t first = 0;
  float* out = nullptr;  // [rows][width]
};

// `rows` of them.
cudaError_t LaunchStates(const StatesParams& params, int rows,
                         Launcher& launcher);

// Sums of QKV's groups, ascending, and bias; then QK norm and rotation. The
// query goes to `queries` in fp32, scaled for attention; key and value go,
// rounded, to the row's scratch slot. A value that is not finite is kept as the
// largest finite one, NaN as 0: attention takes keys of other paths out by a
// weight of exactly 0, and 0 times infinity would not be 0. (What made it so is
// still in the row's own stream and key.)
struct RopeParams {
  const PassHeader* pass = nullptr;
  const float* sums = nullptr;        // [groups][padded_rows][features]
  const float* bias = nullptr;        // [features], nullptr: none
  const float* query_norm = nullptr;  // [head_dim], nullptr: none
  const float* key_norm = nullptr;
  const float* cosines = nullptr;  // [max_positions][head_dim / 2]
  const float* sines = nullptr;
  float* queries = nullptr;  // [padded_rows][heads][padded_head_dim]
  KvMemory kv;
  int64_t padded_rows = 0, features = 0;
  int32_t groups = 0, heads = 0, head_dim = 0, layer = 0;
  float eps = 0, query_scale = 0;
};

// Once per process and device, before the first pass.
cudaError_t PrepareNormRope();

cudaError_t LaunchRope(DeviceType type, const RopeParams& params, int rows,
                       Launcher& launcher);

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_NORM_ROPE_H_
