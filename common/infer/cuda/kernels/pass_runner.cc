#include "common/infer/cuda/kernels/pass_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/infer/cuda/kernels/norm_rope.h"
#include "common/infer/cuda/kernels/sampler.h"
#include "common/infer/cuda/kernels/walk_commit.h"

namespace foretoken {
namespace device {
namespace {

constexpr size_t kMaxGraphs = 128;

#define FORETOKEN_RETURN_IF_CUDA_ERROR(expression)      \
  do {                                                  \
    const cudaError_t error_here_ = (expression);       \
    if (error_here_ != cudaSuccess) return error_here_; \
  } while (false)

// Results lie in one piece: walks, then tokens.
int64_t TokensAt(int32_t max_sessions) {
  return RoundUp(max_sessions * static_cast<int64_t>(sizeof(DeviceWalk)), 16);
}

}  // namespace

PassRunner::~PassRunner() {
  (void)cudaStreamSynchronize(stream_);
  DropGraphs();
}

void PassRunner::DropGraphs() {
  for (auto& [sizes, graph] : graphs_) {
    if (graph != nullptr) (void)cudaGraphExecDestroy(graph);
  }
  graphs_.clear();
}

DeviceStatus PassRunner::Create(const DeviceOptions& options) {
  FORETOKEN_DEVICE_RETURN_IF_ERROR(CreateBuffers());
  return CreateKv(options);
}

DeviceStatus PassRunner::CreateBuffers() {
  const int64_t rows = shape_.padded_rows;
  const DeviceShape& m = shape_.model;
  const struct {
    DeviceMemory& memory;
    int64_t bytes;
    const char* what;
  } buffers[] = {
      {stream_rows_, rows * shape_.width * 4, "memory for the residual stream"},
      {x_, rows * shape_.qkv.k * 2, "memory for activations"},
      {attended_, rows * shape_.attention_output.k * 2,
       "memory for attention's results"},
      {activated_, rows * shape_.down.k * 2, "memory for the feed-forward"},
      {sums_, shape_.partial_sums() * 4, "memory for partial sums"},
      {queries_, rows * m.heads * shape_.padded_head_dim * 4,
       "memory for queries"},
      {partial_values_, shape_.partial_values() * shape_.padded_head_dim * 4,
       "memory for partial attention"},
      {partial_sums_, shape_.partial_values() * 8,
       "memory for partial attention"},
      {logits_, rows * shape_.head.features * 4, "memory for logits"},
      {results_,
       TokensAt(shape_.max_sessions) +
           shape_.max_rows * static_cast<int64_t>(sizeof(DeviceToken)),
       "memory for results"},
      {commits_, int64_t{shape_.max_rows} * 2 * 4 * 4, "memory for commits"},
  };
  for (const auto& buffer : buffers) {
    FORETOKEN_DEVICE_RETURN_IF_ERROR(
        buffer.memory.Allocate(buffer.bytes, buffer.what, stream_));
  }
  FORETOKEN_DEVICE_RETURN_IF_ERROR(
      host_results_.Allocate(results_.bytes(), "pinned memory for results"));
  return host_commits_.Allocate(commits_.bytes(), "pinned memory for commits");
}

DeviceStatus PassRunner::CreateKv(const DeviceOptions& options) {
  const int64_t page_bytes = shape_.page_bytes();
  int64_t pages = options.pages;
  if (pages == 0) {
    size_t free_bytes = 0, total_bytes = 0;
    FORETOKEN_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes),
                                   "size of the memory");
    pages = shape_.DefaultPages(static_cast<int64_t>(free_bytes), options);
  }
  if (pages < 1) {
    return MakeStatus(kResourceExhausted, "no memory is left for a page of KV");
  }
  pages_ = pages;
  const int64_t bytes = (pages + shape_.scratch_pages) * page_bytes / 2;
  FORETOKEN_DEVICE_RETURN_IF_ERROR(
      keys_.Allocate(bytes, "memory for keys", stream_));
  return values_.Allocate(bytes, "memory for values", stream_);
}

DeviceStatus PassRunner::MakeRoom(const PassLayout& layout) {
  const int64_t saved = layout.saved_logits * 4;
  const int64_t commits = int64_t{layout.header.commits} * 4;
  if (layout.bytes <= pass_.bytes() && layout.bytes <= host_pass_.bytes() &&
      saved <= saved_.bytes() && commits <= commit_rows_.bytes()) {
    return DeviceStatus();
  }
  FORETOKEN_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_),
                                 "wait before growth");
  DropGraphs();
  const DeviceStatus grown = Grow(layout, 2);
  // Where memory is short, without room for what comes later.
  return grown.code == kResourceExhausted ? Grow(layout, 1) : grown;
}

DeviceStatus PassRunner::Grow(const PassLayout& layout, int64_t margin) {
  const int64_t saved = layout.saved_logits * 4;
  const int64_t commits = int64_t{layout.header.commits} * 4;
  const auto grown = [margin](int64_t bytes) {
    return std::max<int64_t>(margin * bytes, 1 << 16);
  };
  if (layout.bytes > pass_.bytes() || layout.bytes > host_pass_.bytes()) {
    FORETOKEN_DEVICE_RETURN_IF_ERROR(pass_.Allocate(
        grown(layout.bytes), "memory for a pass's arrays", stream_));
    FORETOKEN_DEVICE_RETURN_IF_ERROR(host_pass_.Allocate(
        grown(layout.bytes), "pinned memory for a pass's arrays"));
  }
  if (saved > saved_.bytes() || saved_.bytes() == 0) {
    FORETOKEN_DEVICE_RETURN_IF_ERROR(
        saved_.Allocate(grown(saved), "memory for saved logits", stream_));
  }
  if (commits > commit_rows_.bytes() || commit_rows_.bytes() == 0) {
    FORETOKEN_DEVICE_RETURN_IF_ERROR(commit_rows_.Allocate(
        grown(commits), "memory for committed rows", stream_));
  }
  return DeviceStatus();
}

DeviceStatus PassRunner::Run(const DevicePass& pass, DeviceToken* tokens,
                             DeviceWalk* walks) {
  last_rows_ = last_outputs_ = 0;
  if (pass.rows.size == 0) return DeviceStatus();
  const PassLayout layout(pass, shape_);
  FORETOKEN_DEVICE_RETURN_IF_ERROR(MakeRoom(layout));
  layout.Write(pass, shape_, host_pass_.as<void>());
  DeviceStatus status = RunToEnd(pass, layout);
  if (!status.ok()) {
    // The next pass overwrites what a copy may still be reading.
    (void)cudaStreamSynchronize(stream_);
    return status;
  }
  commits_used_ = 0;
  std::copy_n(host_results_.as<DeviceWalk>(), pass.sessions.size, walks);
  std::copy_n(reinterpret_cast<const DeviceToken*>(
                  host_results_.as<char>() + TokensAt(shape_.max_sessions)),
              pass.outputs.size, tokens);
  last_rows_ = pass.rows.size;
  last_outputs_ = pass.outputs.size;
  return DeviceStatus();
}

DeviceStatus PassRunner::RunToEnd(const DevicePass& pass,
                                  const PassLayout& layout) {
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(pass_.as<void>(), host_pass_.as<void>(), layout.bytes,
                      cudaMemcpyHostToDevice, stream_),
      "copy of a pass to the device");
  const PassSizes sizes = ExactSizes(layout);
  if (graphs_on_ && HasTier(sizes)) {
    FORETOKEN_DEVICE_RETURN_IF_ERROR(
        RunGraph(TierOf(sizes, shape_.max_chunks)));
  } else {
    FORETOKEN_CUDA_RETURN_IF_ERROR(Launch(sizes, overlap_),
                                   "kernels of a pass");
  }
  const int64_t bytes =
      TokensAt(shape_.max_sessions) +
      pass.outputs.size * static_cast<int64_t>(sizeof(DeviceToken));
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(host_results_.as<void>(), results_.as<void>(), bytes,
                      cudaMemcpyDeviceToHost, stream_),
      "copy of a pass's results");
  return CheckCuda(cudaStreamSynchronize(stream_), "a pass");
}

DeviceStatus PassRunner::RunGraph(const PassSizes& sizes) {
  const auto found = graphs_.find(sizes);
  if (found != graphs_.end() && found->second != nullptr) {
    const DeviceStatus launched =
        CheckCuda(cudaGraphLaunch(found->second, stream_), "graph of a pass");
    if (launched.code != kResourceExhausted) return launched;
    // The device takes memory for a graph when it first runs: give it back,
    // and do without.
    DropGraphs();
    return CheckCuda(Launch(sizes, overlap_), "kernels of a pass");
  }
  FORETOKEN_CUDA_RETURN_IF_ERROR(Launch(sizes, overlap_), "kernels of a pass");
  if (found != graphs_.end()) return DeviceStatus();
  // The first pass of its sizes runs without; its graph is made meanwhile.
  // (Graphs that ran are done: every pass is waited for.)
  if (graphs_.size() >= kMaxGraphs) DropGraphs();
  graphs_.emplace(sizes, MakeGraph(sizes));
  return DeviceStatus();
}

cudaGraphExec_t PassRunner::MakeGraph(const PassSizes& sizes) {
  cudaGraphExec_t graph = nullptr;
  if (Capture(sizes, overlap_, &graph).ok()) return graph;
  // A driver that cannot put early starts into a graph: without them.
  if (overlap_ && Capture(sizes, false, &graph).ok()) return graph;
  return nullptr;
}

DeviceStatus PassRunner::Capture(const PassSizes& sizes, bool overlap,
                                 cudaGraphExec_t* graph) {
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
      "begin of a capture");
  const cudaError_t launched = Launch(sizes, overlap);
  cudaGraph_t captured = nullptr;
  // Ends the capture whatever happened, or the stream stays unusable.
  const cudaError_t ended = cudaStreamEndCapture(stream_, &captured);
  DeviceStatus status = CheckCuda(launched, "capture of a pass's kernels");
  if (status.ok()) status = CheckCuda(ended, "end of a capture");
  if (status.ok()) {
    status = CheckCuda(cudaGraphInstantiate(graph, captured, 0),
                       "instantiation of a graph");
  }
  if (captured != nullptr) (void)cudaGraphDestroy(captured);
  return status;
}

cudaError_t PassRunner::Multiply(GemmEpilogue epilogue,
                                 const MatrixShape& matrix, const void* weights,
                                 const DeviceMemory& x, void* out, int rows,
                                 Launcher& launcher) const {
  GemmParams params;
  params.weights = weights;
  params.x = x.as<void>();
  params.out = out;
  params.rows =
      epilogue == GemmEpilogue::kLogits ? &header()->outputs : &header()->rows;
  params.padded_rows = shape_.padded_rows;
  params.features = matrix.features;
  params.k = matrix.k;
  params.groups = matrix.groups;
  return LaunchGemm(epilogue, shape_.type, params, rows, launcher);
}

cudaError_t PassRunner::Launch(const PassSizes& sizes, bool overlap) {
  Launcher launcher;
  launcher.stream = stream_;
  launcher.overlap = overlap;
  NormParams norm;
  norm.pass = header();
  norm.stream = stream_rows_.as<float>();
  norm.embedding = weights_.embedding();
  norm.weight = weights_.layer(0).attention_norm;
  norm.out = x_.as<void>();
  norm.padded_rows = shape_.padded_rows;
  norm.width = shape_.width;
  norm.d_model = shape_.model.d_model;
  norm.eps = shape_.model.rms_norm_eps;
  FORETOKEN_RETURN_IF_CUDA_ERROR(
      LaunchNorm(shape_.type, norm, sizes.rows, launcher));
  for (int i = 0; i < shape_.model.layers; ++i) {
    FORETOKEN_RETURN_IF_CUDA_ERROR(LaunchLayer(i, sizes, launcher));
  }
  return LaunchEnd(sizes, launcher);
}

cudaError_t PassRunner::LaunchLayer(int index, const PassSizes& sizes,
                                    Launcher& launcher) {
  const LayerPointers& layer = weights_.layer(index);
  FORETOKEN_RETURN_IF_CUDA_ERROR(Multiply(GemmEpilogue::kPartial, shape_.qkv,
                                          layer.qkv, x_, sums_.as<void>(),
                                          sizes.rows, launcher));
  FORETOKEN_RETURN_IF_CUDA_ERROR(LaunchAttentionOf(index, sizes, launcher));
  FORETOKEN_RETURN_IF_CUDA_ERROR(Multiply(
      GemmEpilogue::kPartial, shape_.attention_output, layer.attention_output,
      attended_, sums_.as<void>(), sizes.rows, launcher));

  NormParams norm;
  norm.pass = header();
  norm.stream = stream_rows_.as<float>();
  norm.sums = sums_.as<float>();
  norm.out = x_.as<void>();
  norm.padded_rows = shape_.padded_rows;
  norm.width = shape_.width;
  norm.d_model = shape_.model.d_model;
  norm.eps = shape_.model.rms_norm_eps;
  norm.bias = layer.output_bias;
  norm.weight = layer.ffn_norm;
  norm.groups = shape_.attention_output.groups;
  FORETOKEN_RETURN_IF_CUDA_ERROR(
      LaunchNorm(shape_.type, norm, sizes.rows, launcher));

  GemmParams gate_up;
  gate_up.weights = layer.gate_up;
  gate_up.x = x_.as<void>();
  gate_up.out = activated_.as<void>();
  gate_up.gate_bias = layer.gate_bias;
  gate_up.up_bias = layer.up_bias;
  gate_up.rows = &header()->rows;
  gate_up.padded_rows = shape_.padded_rows;
  gate_up.features = shape_.gate_up.features;
  gate_up.k = shape_.gate_up.k;
  FORETOKEN_RETURN_IF_CUDA_ERROR(LaunchGemm(GemmEpilogue::kSwiGlu, shape_.type,
                                            gate_up, sizes.rows, launcher));
  FORETOKEN_RETURN_IF_CUDA_ERROR(
      Multiply(GemmEpilogue::kPartial, shape_.down, layer.down, activated_,
               sums_.as<void>(), sizes.rows, launcher));

  norm.bias = layer.down_bias;
  norm.groups = shape_.down.groups;
  // The last layer's is needed where there is an output.
  const bool last = index + 1 == shape_.model.layers;
  norm.weight =
      last ? weights_.final_norm() : weights_.layer(index + 1).attention_norm;
  norm.by_output = last;
  return LaunchNorm(shape_.type, norm, last ? sizes.outputs : sizes.rows,
                    launcher);
}

cudaError_t PassRunner::LaunchAttentionOf(int index, const PassSizes& sizes,
                                          Launcher& launcher) {
  const LayerPointers& layer = weights_.layer(index);
  const DeviceShape& m = shape_.model;
  RopeParams rope;
  rope.pass = header();
  rope.sums = sums_.as<float>();
  rope.bias = layer.qkv_bias;
  rope.query_norm = layer.query_norm;
  rope.key_norm = layer.key_norm;
  rope.cosines = weights_.cosines();
  rope.sines = weights_.sines();
  rope.queries = queries_.as<float>();
  rope.keys = keys_.as<void>();
  rope.values = values_.as<void>();
  rope.kv = kv_shape();
  rope.padded_rows = shape_.padded_rows;
  rope.features = shape_.qkv.features;
  rope.first_scratch_slot = pages_ * kDevicePageTokens;
  rope.groups = shape_.qkv.groups;
  rope.heads = m.heads;
  rope.head_dim = m.head_dim;
  rope.layer = index;
  rope.eps = m.rms_norm_eps;
  // Weights are powers of two (exp2): log2(e) goes into the scale.
  rope.query_scale = static_cast<float>(
      1.4426950408889634 / std::sqrt(static_cast<double>(m.head_dim)));
  FORETOKEN_RETURN_IF_CUDA_ERROR(
      LaunchRope(shape_.type, rope, sizes.rows, launcher));

  AttentionParams attention;
  attention.pass = header();
  attention.queries = queries_.as<float>();
  attention.keys = keys_.as<void>();
  attention.values = values_.as<void>();
  attention.partial_values = partial_values_.as<float>();
  attention.partial_sums = partial_sums_.as<float2>();
  attention.out = attended_.as<void>();
  attention.kv = kv_shape();
  attention.padded_rows = shape_.padded_rows;
  attention.heads = m.heads;
  attention.head_dim = m.head_dim;
  attention.group = shape_.group;
  attention.layer = index;
  attention.max_chunks = shape_.max_chunks;
  attention.slab_tasks = shape_.slab_tasks;
  for (int first = 0; first < sizes.tasks; first += shape_.slab_tasks) {
    attention.first_task = first;
    FORETOKEN_RETURN_IF_CUDA_ERROR(
        LaunchAttention(shape_.type, attention,
                        std::min(shape_.slab_tasks, sizes.tasks - first),
                        sizes.chunks, launcher));
  }
  return cudaSuccess;
}

cudaError_t PassRunner::LaunchEnd(const PassSizes& sizes, Launcher& launcher) {
  FORETOKEN_RETURN_IF_CUDA_ERROR(
      Multiply(GemmEpilogue::kLogits, shape_.head, weights_.head(), x_,
               logits_.as<void>(), sizes.outputs, launcher));
  auto* tokens = reinterpret_cast<DeviceToken*>(results_.as<char>() +
                                                TokensAt(shape_.max_sessions));
  SamplerParams sampler;
  sampler.pass = header();
  sampler.logits = logits_.as<float>();
  sampler.saved = saved_.as<float>();
  sampler.tokens = tokens;
  sampler.stride = shape_.head.features;
  sampler.vocab = shape_.model.vocab;
  FORETOKEN_RETURN_IF_CUDA_ERROR(
      LaunchSampler(sampler, sizes.outputs, launcher));
  WalkParams walk;
  walk.pass = header();
  walk.tokens = tokens;
  walk.walks = results_.as<DeviceWalk>();
  walk.commit_rows = commit_rows_.as<int32_t>();
  FORETOKEN_RETURN_IF_CUDA_ERROR(
      LaunchWalk(walk, std::min(sizes.rows, shape_.max_sessions), launcher));
  CommitParams commit;
  commit.pass = header();
  commit.rows = commit_rows_.as<int32_t>();
  commit.keys = keys_.as<void>();
  commit.values = values_.as<void>();
  commit.kv = kv_shape();
  commit.first_scratch_slot = pages_ * kDevicePageTokens;
  commit.layers = shape_.model.layers;
  return LaunchCommit(commit, sizes.rows, launcher);
}

DeviceStatus PassRunner::Commit(const int32_t* rows, const int32_t* slots,
                                int32_t count) {
  if (count == 0) return DeviceStatus();
  if (count < 0 || count > last_rows_) {
    return MakeStatus(kInvalidArgument, "commit: %d rows, the last pass had %d",
                      count, last_rows_);
  }
  for (int32_t i = 0; i < count; ++i) {
    if (rows[i] < 0 || rows[i] >= last_rows_ || slots[i] < 0 ||
        slots[i] >= pages_ * kDevicePageTokens) {
      return MakeStatus(kInvalidArgument, "commit: row %d to slot %d", rows[i],
                        slots[i]);
    }
  }
  const int64_t bytes = int64_t{count} * 2 * 4;
  if (commits_used_ + bytes > host_commits_.bytes()) {
    FORETOKEN_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_),
                                   "wait before a commit");
    commits_used_ = 0;
  }
  char* host = host_commits_.as<char>() + commits_used_;
  char* device = commits_.as<char>() + commits_used_;
  std::memcpy(host, rows, bytes / 2);
  std::memcpy(host + bytes / 2, slots, bytes / 2);
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_),
      "copy of a commit");
  commits_used_ += bytes;
  CommitParams commit;
  commit.rows = reinterpret_cast<const int32_t*>(device);
  commit.slots = reinterpret_cast<const int32_t*>(device + bytes / 2);
  commit.count = count;
  commit.keys = keys_.as<void>();
  commit.values = values_.as<void>();
  commit.kv = kv_shape();
  commit.first_scratch_slot = pages_ * kDevicePageTokens;
  commit.layers = shape_.model.layers;
  Launcher launcher;
  launcher.stream = stream_;
  return CheckCuda(LaunchCommit(commit, count, launcher), "commit");
}

DeviceStatus PassRunner::Logits(int32_t output, float* logits) {
  if (output < 0 || output >= last_outputs_) {
    return MakeStatus(kInvalidArgument,
                      "logits: output %d, the last pass had %d", output,
                      last_outputs_);
  }
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(
          logits, logits_.as<float>() + output * shape_.head.features,
          int64_t{shape_.model.vocab} * 4, cudaMemcpyDeviceToHost, stream_),
      "copy of logits");
  return CheckCuda(cudaStreamSynchronize(stream_), "copy of logits");
}

}  // namespace device
}  // namespace foretoken
