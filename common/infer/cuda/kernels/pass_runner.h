// One pass on the device: its buffers, the order of its kernels, its CUDA
// graphs. One copy in, kernels, one copy out, one wait.
//
// Owned by one thread, on which the device is current.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_PASS_RUNNER_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_PASS_RUNNER_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "common/infer/cuda/kernels/attention.h"
#include "common/infer/cuda/kernels/cuda_check.h"
#include "common/infer/cuda/kernels/engine_shape.h"
#include "common/infer/cuda/kernels/gemm.h"
#include "common/infer/cuda/kernels/graph_cache.h"
#include "common/infer/cuda/kernels/launch_watch.h"
#include "common/infer/cuda/kernels/norm_rope.h"
#include "common/infer/cuda/kernels/pass_layout.h"
#include "common/infer/cuda/kernels/pass_tier.h"
#include "common/infer/cuda/kernels/weight_store.h"

namespace foretoken::device {

class PassRunner {
 public:
  PassRunner(const EngineShape& shape, const WeightStore& weights,
             cudaStream_t stream, const DeviceLimits& device, bool graphs,
             bool overlap)
      : shape_(shape),
        weights_(weights),
        stream_(stream),
        device_(device),
        watched_(LaunchWatch::Wanted()),
        graphs_on_(graphs && !watched_),
        overlap_(overlap && !watched_),
        graphs_(
            [](cudaGraphExec_t graph) { (void)cudaGraphExecDestroy(graph); }) {}
  ~PassRunner();
  PassRunner(const PassRunner&) = delete;
  PassRunner& operator=(const PassRunner&) = delete;

  // Buffers of a pass; then KV memory of as many pages as the options say.
  DeviceStatus Create(const DeviceOptions& options);

  int64_t pages() const { return pages_; }
  // Rows of one copy of States.
  static constexpr int32_t kStateRows = 64;

  // Whether a watched kernel did not end: nothing may wait for the stream.
  bool hangs() const { return watch_.hangs(); }

  // Runs a pass that CheckPass has accepted, and `meanwhile` after its launch.
  DeviceStatus Run(const DevicePass& pass, DeviceToken* tokens,
                   DeviceWalk* walks, HostWork& meanwhile);
  DeviceStatus CopyKv(const int32_t* from, const int32_t* to, int32_t count);
  DeviceStatus Logits(int32_t output, float* logits);
  DeviceStatus States(int32_t first, int32_t count, float* states);

 private:
  DeviceStatus CreateBuffers();
  DeviceStatus CreateKv(const DeviceOptions& options);
  // Room for a pass's arrays and saved logits; drops the graphs if it moves.
  DeviceStatus MakeRoom(const PassLayout& layout);
  // Grows every buffer that is too small to `margin` times the required size.
  DeviceStatus Grow(const PassLayout& layout, int64_t margin);
  // Launches a pass and the copy of its results, runs `meanwhile`, and waits
  // for both.
  DeviceStatus RunToEnd(const DevicePass& pass, const PassLayout& layout,
                        HostWork& meanwhile);
  DeviceStatus RunGraph(const PassSizes& sizes);
  // Returns nullptr if the sizes cannot be captured.
  cudaGraphExec_t MakeGraph(const PassSizes& sizes);
  DeviceStatus Capture(const PassSizes& sizes, bool overlap,
                       cudaGraphExec_t* graph);

  // Starts kernels on the stream, watched where that is asked for.
  Launcher MakeLauncher(bool overlap);
  DeviceStatus CheckLaunched(cudaError_t error, const char* what) const;
  // The kernels of a pass, in order, for grids of `sizes`.
  cudaError_t Launch(const PassSizes& sizes, bool overlap);
  cudaError_t LaunchLayer(int layer, const PassSizes& sizes,
                          Launcher& launcher);
  cudaError_t LaunchAttentionOf(int layer, const PassSizes& sizes,
                                Launcher& launcher);
  cudaError_t LaunchEnd(const PassSizes& sizes, Launcher& launcher);
  cudaError_t Multiply(GemmEpilogue epilogue, const MatrixShape& matrix,
                       const void* weights, const DeviceMemory& x,
                       const DeviceMemory& out, int rows, Launcher& launcher,
                       const float* gate_bias = nullptr,
                       const float* up_bias = nullptr) const;

  // How attention's thread blocks are built in passes of these sizes, and how
  // many chunks each block takes.
  AttentionTiling AttentionTilingOf(const PassSizes& sizes) const;
  int AttentionSpanOf(const PassLayout& layout) const;

  const PassHeader* header() const { return pass_.as<PassHeader>(); }
  // The norm of the residual stream, as most of its kernels run.
  NormParams Norm(const float* weight) const;

  const EngineShape shape_;
  const WeightStore& weights_;
  const cudaStream_t stream_;
  const DeviceLimits device_;
  const bool watched_;
  const bool graphs_on_;
  const bool overlap_;
  int64_t pages_ = 0;
  int32_t last_rows_ = 0, last_outputs_ = 0;
  // Groups of the last product's sums in the last pass.
  int32_t last_groups_ = 0;

  DeviceMemory keys_, values_;
  KvMemory kv_;               // in these two
  DeviceMemory stream_rows_;  // residual stream [padded_rows][width]
  DeviceMemory x_, attended_, activated_;  // activations
  DeviceMemory sums_, queries_, partial_values_, partial_sums_, logits_;
  DeviceMemory pass_, saved_, commit_rows_, commits_, results_;
  DeviceMemory states_;  // [kStateRows][width]
  PinnedMemory host_states_;
  PinnedMemory host_pass_, host_commits_, host_results_;
  int64_t commits_used_ = 0;  // of host_commits_, since the last wait
  GraphCache<cudaGraphExec_t> graphs_;
  LaunchWatch watch_;
};

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_PASS_RUNNER_H_
