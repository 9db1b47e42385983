#include "common/infer/cuda/kernels/pass_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/infer/cuda/kernels/sampler.h"
#include "common/infer/cuda/kernels/walk_commit.h"

namespace foretoken::device {
namespace {

// The least memory for each of a pass's arrays, so that a server's first busy
// minutes do not move them, which would cost all graphs.
constexpr int64_t kFirstBytes = int64_t{1} << 20;

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
  // Kernels and copies use the members' memory. One that hangs would never be
  // waited out; then the memory is the process's to lose.
  if (!hangs()) (void)cudaStreamSynchronize(stream_);
  graphs_.Clear();
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
      {partial_values_, shape_.partial_vectors * shape_.padded_head_dim * 4,
       "memory for partial attention"},
      {partial_sums_, shape_.partial_vectors * 8,
       "memory for partial attention"},
      {logits_, rows * shape_.head.features * 4, "memory for logits"},
      {states_, int64_t{kStateRows} * shape_.width * 4, "memory for states"},
      {results_,
       TokensAt(shape_.max_sessions) +
           shape_.max_rows * static_cast<int64_t>(sizeof(DeviceToken)),
       "memory for results"},
      // Room for four of the largest copies, so that a copy seldom waits for
      // the ones before it.
      {commits_,
       int64_t{std::max(shape_.max_rows, kDevicePageTokens)} * 2 * 4 * 4,
       "memory for commits"},
  };
  for (const auto& buffer : buffers) {
    FORETOKEN_DEVICE_RETURN_IF_ERROR(
        buffer.memory.Allocate(buffer.bytes, buffer.what, stream_));
  }
  // Pinned: copies from pageable memory would be synchronous.
  FORETOKEN_DEVICE_RETURN_IF_ERROR(
      host_results_.Allocate(results_.bytes(), "pinned memory for results"));
  FORETOKEN_DEVICE_RETURN_IF_ERROR(
      host_states_.Allocate(states_.bytes(), "pinned memory for states"));
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
  // Keys and values have half of a page each.
  const int64_t bytes = (pages + shape_.scratch_pages) * page_bytes / 2;
  FORETOKEN_DEVICE_RETURN_IF_ERROR(
      keys_.Allocate(bytes, "memory for keys", stream_));
  FORETOKEN_DEVICE_RETURN_IF_ERROR(
      values_.Allocate(bytes, "memory for values", stream_));
  kv_.total_pages = pages + shape_.scratch_pages;
  kv_.kv_heads = shape_.model.kv_heads;
  kv_.padded_head_dim = shape_.padded_head_dim;
  kv_.keys = keys_.as<void>();
  kv_.values = values_.as<void>();
  kv_.first_scratch_slot = pages * kDevicePageTokens;
  return DeviceStatus();
}

DeviceStatus PassRunner::MakeRoom(const PassLayout& layout) {
  const int64_t saved = layout.saved_logits * 4;
  const int64_t commits = int64_t{layout.header.commits} * 4;
  if (layout.bytes <= pass_.bytes() && layout.bytes <= host_pass_.bytes() &&
      saved <= saved_.bytes() && commits <= commit_rows_.bytes()) {
    return DeviceStatus();
  }
  // Kernels of an earlier pass, or of a copy, may still read the old arrays.
  FORETOKEN_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_),
                                 "wait before growth");
  // Graphs hold the addresses of the arrays that are about to move.
  graphs_.Clear();
  const DeviceStatus grown = Grow(layout, 2);
  // Short of memory: grow without spare room.
  return grown.code == kResourceExhausted ? Grow(layout, 1) : grown;
}

DeviceStatus PassRunner::Grow(const PassLayout& layout, int64_t margin) {
  const int64_t saved = layout.saved_logits * 4;
  const int64_t commits = int64_t{layout.header.commits} * 4;
  const auto grown = [margin](int64_t bytes) {
    return std::max(margin * bytes, kFirstBytes);
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
                             DeviceWalk* walks, HostWork& meanwhile) {
  // Until this pass has succeeded, no logits and no scratch slots may be asked
  // for.
  last_rows_ = last_outputs_ = 0;
  if (pass.rows.size == 0) {
    meanwhile.Run();
    return DeviceStatus();
  }
  PassLayout layout(pass, shape_);
  layout.header.span = AttentionSpanOf(layout);
  FORETOKEN_DEVICE_RETURN_IF_ERROR(MakeRoom(layout));
  layout.Write(pass, shape_, host_pass_.as<void>());
  DeviceStatus status = RunToEnd(pass, layout, meanwhile);
  if (!status.ok()) {
    // The next pass overwrites what a copy may still be reading.
    // (A kernel that hangs would be waited for, for ever.)
    if (!hangs()) (void)cudaStreamSynchronize(stream_);
    return status;
  }
  // The wait at the end of the pass has covered the copies of slots before it.
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
                                  const PassLayout& layout,
                                  HostWork& meanwhile) {
  // One copy for everything that a pass needs.
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(pass_.as<void>(), host_pass_.as<void>(), layout.bytes,
                      cudaMemcpyHostToDevice, stream_),
      "copy of a pass to the device");
  PassSizes sizes = ExactSizes(layout);
  const bool tiered = graphs_on_ && HasTier(sizes);
  if (tiered) sizes = TierOf(sizes, shape_.max_chunks);
  last_groups_ = GroupsWritten(shape_.down, sizes.rows, device_);
  if (tiered) {
    FORETOKEN_DEVICE_RETURN_IF_ERROR(RunGraph(sizes));
  } else {
    FORETOKEN_DEVICE_RETURN_IF_ERROR(
        CheckLaunched(Launch(sizes, overlap_), "kernels of a pass"));
  }
  const int64_t bytes =
      TokensAt(shape_.max_sessions) +
      pass.outputs.size * static_cast<int64_t>(sizeof(DeviceToken));
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(host_results_.as<void>(), results_.as<void>(), bytes,
                      cudaMemcpyDeviceToHost, stream_),
      "copy of a pass's results");
  // While the device computes: masks of constraints need the host alone.
  meanwhile.Run();
  return CheckCuda(cudaStreamSynchronize(stream_), "a pass");
}

DeviceStatus PassRunner::RunGraph(const PassSizes& sizes) {
  if (const cudaGraphExec_t graph = graphs_.Begin(sizes); graph != nullptr) {
    const DeviceStatus launched =
        CheckCuda(cudaGraphLaunch(graph, stream_), "graph of a pass");
    // Any other error is the device's and would come again.
    if (launched.code != kResourceExhausted) return launched;
    // The driver allocates a graph's memory at its first launch. If that fails,
    // free all graphs and launch the kernels themselves.
    graphs_.ClearAndPause();
  }
  FORETOKEN_DEVICE_RETURN_IF_ERROR(
      CheckLaunched(Launch(sizes, overlap_), "kernels of a pass"));
  // The first pass of its sizes runs without; its graph is made meanwhile.
  // (Graphs that ran are done: every pass is waited for.)
  if (graphs_.wants_graph()) graphs_.Add(sizes, MakeGraph(sizes));
  return DeviceStatus();
}

cudaGraphExec_t PassRunner::MakeGraph(const PassSizes& sizes) {
  cudaGraphExec_t graph = nullptr;
  if (Capture(sizes, overlap_, &graph).ok()) return graph;
  // The driver may not support programmatic launches in a graph: retry without.
  if (overlap_ && Capture(sizes, false, &graph).ok()) return graph;
  return nullptr;
}

DeviceStatus PassRunner::Capture(const PassSizes& sizes, bool overlap,
                                 cudaGraphExec_t* graph) {
  // Thread-local: calls of other threads, such as another engine's, do not
  // break the capture.
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
      "begin of a capture");
  const cudaError_t launched = Launch(sizes, overlap);
  cudaGraph_t captured = nullptr;
  // Always end the capture: an open one leaves the stream unusable.
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
                                 const DeviceMemory& x, const DeviceMemory& out,
                                 int rows, Launcher& launcher,
                                 const float* gate_bias,
                                 const float* up_bias) const {
  GemmParams params;
  params.weights = weights;
  params.x = x.as<void>();
  params.out = out.as<void>();
  params.gate_bias = gate_bias;
  params.up_bias = up_bias;
  params.rows =
      epilogue == GemmEpilogue::kLogits ? &header()->outputs : &header()->rows;
  params.padded_rows = shape_.padded_rows;
  params.features = matrix.features;
  params.k = matrix.k;
  params.groups = matrix.groups;
  return LaunchGemm(epilogue, shape_.type, params, rows, device_, launcher);
}

AttentionTiling PassRunner::AttentionTilingOf(const PassSizes& sizes) const {
  return ChooseAttentionTiling(sizes.session_tasks,
                               PaddedHeadDim(shape_.model.head_dim),
                               device_.shared_bytes);
}

int PassRunner::AttentionSpanOf(const PassLayout& layout) const {
  const PassHeader& header = layout.header;
  const AttentionTiling tiling = AttentionTilingOf(ExactSizes(layout));
  const int64_t blocks =
      int64_t{(header.tasks + tiling.warps - 1) / tiling.warps} *
      shape_.model.kv_heads;
  const int resident =
      AttentionResident(tiling, PaddedHeadDim(shape_.model.head_dim));
  return AttentionSpan(blocks, header.chunks,
                       int64_t{device_.multiprocessors} * resident);
}

NormParams PassRunner::Norm(const float* weight) const {
  NormParams norm;
  norm.pass = header();
  norm.stream = stream_rows_.as<float>();
  norm.weight = weight;
  norm.out = x_.as<void>();
  norm.padded_rows = shape_.padded_rows;
  norm.width = shape_.width;
  norm.d_model = shape_.model.d_model;
  norm.eps = shape_.model.rms_norm_eps;
  return norm;
}

Launcher PassRunner::MakeLauncher(bool overlap) {
  Launcher launcher;
  launcher.stream = stream_;
  launcher.overlap = overlap;
  if (watched_) launcher.watch = &watch_;
  return launcher;
}

DeviceStatus PassRunner::CheckLaunched(cudaError_t error,
                                       const char* what) const {
  const DeviceStatus status = CheckCuda(error, what);
  if (status.ok() || watch_.failure()[0] == '\0') return status;
  // Adds which kernel it was, if launches are watched.
  return MakeStatus(status.code, "%s: %s", what, watch_.failure());
}

cudaError_t PassRunner::Launch(const PassSizes& sizes, bool overlap) {
  Launcher launcher = MakeLauncher(overlap);
  if (watched_) watch_.BeginPass();
  NormParams norm = Norm(weights_.layer(0).attention_norm);
  norm.embedding = weights_.embedding();
  FORETOKEN_RETURN_IF_CUDA_ERROR(
      LaunchNorm(shape_.type, norm, sizes.rows, device_, launcher));
  for (int i = 0; i < shape_.model.layers; ++i) {
    FORETOKEN_RETURN_IF_CUDA_ERROR(LaunchLayer(i, sizes, launcher));
  }
  return LaunchEnd(sizes, launcher);
}

cudaError_t PassRunner::LaunchLayer(int index, const PassSizes& sizes,
                                    Launcher& launcher) {
  const LayerPointers& layer = weights_.layer(index);
  if (watched_) watch_.BeginLayer(index);
  FORETOKEN_RETURN_IF_CUDA_ERROR(Multiply(GemmEpilogue::kPartial, shape_.qkv,
                                          layer.qkv, x_, sums_, sizes.rows,
                                          launcher));
  FORETOKEN_RETURN_IF_CUDA_ERROR(LaunchAttentionOf(index, sizes, launcher));
  FORETOKEN_RETURN_IF_CUDA_ERROR(
      Multiply(GemmEpilogue::kPartial, shape_.attention_output,
               layer.attention_output, attended_, sums_, sizes.rows, launcher));

  NormParams norm = Norm(layer.ffn_norm);
  norm.sums = sums_.as<float>();
  norm.bias = layer.output_bias;
  // Depends on the number of rows: the reduction must read as many partial sums
  // as the product wrote.
  norm.groups = GroupsWritten(shape_.attention_output, sizes.rows, device_);
  FORETOKEN_RETURN_IF_CUDA_ERROR(
      LaunchNorm(shape_.type, norm, sizes.rows, device_, launcher));

  FORETOKEN_RETURN_IF_CUDA_ERROR(Multiply(
      GemmEpilogue::kSwiGlu, shape_.gate_up, layer.gate_up, x_, activated_,
      sizes.rows, launcher, layer.gate_bias, layer.up_bias));
  FORETOKEN_RETURN_IF_CUDA_ERROR(Multiply(GemmEpilogue::kPartial, shape_.down,
                                          layer.down, activated_, sums_,
                                          sizes.rows, launcher));

  norm.bias = layer.down_bias;
  norm.groups = GroupsWritten(shape_.down, sizes.rows, device_);
  // The norm after the last layer is needed for output rows only.
  const bool last = index + 1 == shape_.model.layers;
  norm.weight =
      last ? weights_.final_norm() : weights_.layer(index + 1).attention_norm;
  // Gathers the rows with an output, so that the head multiplies no others.
  norm.by_output = last;
  return LaunchNorm(shape_.type, norm, last ? sizes.outputs : sizes.rows,
                    device_, launcher);
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
  rope.kv = kv_;
  rope.padded_rows = shape_.padded_rows;
  rope.features = shape_.qkv.features;
  rope.groups = GroupsWritten(shape_.qkv, sizes.rows, device_);
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
  attention.partial_values = partial_values_.as<float>();
  attention.partial_sums = partial_sums_.as<float2>();
  attention.out = attended_.as<void>();
  attention.kv = kv_;
  attention.padded_rows = shape_.padded_rows;
  attention.heads = m.heads;
  attention.head_dim = m.head_dim;
  attention.group = shape_.group;
  attention.layer = index;
  attention.chunks = sizes.chunks;
  attention.slab_queries = shape_.SlabQueries(sizes.chunks);
  const AttentionTiling tiling = AttentionTilingOf(sizes);
  const int queries = sizes.rows * shape_.group;
  // Partial results of all queries may not fit the buffer: slab by slab.
  for (; attention.first_query < queries;
       attention.first_query += attention.slab_queries) {
    FORETOKEN_RETURN_IF_CUDA_ERROR(
        LaunchAttention(shape_.type, attention, sizes.rows, tiling, launcher));
  }
  return cudaSuccess;
}

cudaError_t PassRunner::LaunchEnd(const PassSizes& sizes, Launcher& launcher) {
  if (watched_) watch_.BeginLayer(-1);
  FORETOKEN_RETURN_IF_CUDA_ERROR(Multiply(GemmEpilogue::kLogits, shape_.head,
                                          weights_.head(), x_, logits_,
                                          sizes.outputs, launcher));
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
  // One block for a session; there are no more sessions than rows.
  FORETOKEN_RETURN_IF_CUDA_ERROR(
      LaunchWalk(walk, std::min(sizes.rows, shape_.max_sessions), launcher));
  CommitParams commit;
  commit.pass = header();
  commit.rows = commit_rows_.as<int32_t>();
  commit.kv = kv_;
  commit.layers = shape_.model.layers;
  return LaunchCommit(commit, sizes.rows, launcher);
}

DeviceStatus PassRunner::CopyKv(const int32_t* from, const int32_t* to,
                                int32_t count) {
  if (count == 0) return DeviceStatus();
  const int64_t bytes = int64_t{count} * 2 * 4;
  if (count < 0 || bytes > host_commits_.bytes()) {
    return MakeStatus(kInvalidArgument, "copy of KV: %d slots, want at most %d",
                      count, static_cast<int>(host_commits_.bytes() / (2 * 4)));
  }
  const int64_t page_slots = pages_ * kDevicePageTokens;
  for (int32_t i = 0; i < count; ++i) {
    // Scratch slots of rows that the last pass did not have hold old KV.
    if (from[i] < 0 || from[i] >= page_slots + last_rows_ || to[i] < 0 ||
        to[i] >= page_slots) {
      return MakeStatus(kInvalidArgument, "copy of KV: slot %d to slot %d",
                        from[i], to[i]);
    }
  }
  // The ring of slots is full: what is in it may still be read by copies under
  // way.
  if (commits_used_ + bytes > host_commits_.bytes()) {
    FORETOKEN_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_),
                                   "wait before a copy of KV");
    commits_used_ = 0;
  }
  char* host = host_commits_.as<char>() + commits_used_;
  char* device = commits_.as<char>() + commits_used_;
  std::memcpy(host, from, bytes / 2);
  std::memcpy(host + bytes / 2, to, bytes / 2);
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_),
      "slots of a copy of KV");
  commits_used_ += bytes;
  CommitParams commit;
  commit.rows = reinterpret_cast<const int32_t*>(device);
  commit.slots = reinterpret_cast<const int32_t*>(device + bytes / 2);
  commit.count = count;
  commit.kv = kv_;
  commit.kv.first_scratch_slot = 0;  // `rows` are slots
  commit.layers = shape_.model.layers;
  // Without overlap: the copy must see all that was launched before it.
  Launcher launcher = MakeLauncher(false);
  return CheckLaunched(LaunchCommit(commit, count, launcher), "copy of KV");
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

DeviceStatus PassRunner::States(int32_t first, int32_t count, float* states) {
  if (first < 0 || count < 0 || count > last_rows_ - first) {
    return MakeStatus(kInvalidArgument,
                      "states: %d rows from %d on, the last pass had %d", count,
                      first, last_rows_);
  }
  StatesParams params;
  params.norm = Norm(weights_.final_norm());
  params.norm.sums = sums_.as<float>();
  params.norm.bias = weights_.layer(shape_.model.layers - 1).down_bias;
  params.norm.groups = last_groups_;
  params.out = states_.as<float>();
  Launcher launcher = MakeLauncher(false);
  for (int32_t done = 0; done < count; done += kStateRows) {
    const int32_t rows = std::min(kStateRows, count - done);
    params.first = first + done;
    FORETOKEN_DEVICE_RETURN_IF_ERROR(
        CheckLaunched(LaunchStates(params, rows, launcher), "states"));
    FORETOKEN_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(host_states_.as<void>(), states_.as<void>(),
                        int64_t{rows} * shape_.width * 4,
                        cudaMemcpyDeviceToHost, stream_),
        "copy of states");
    FORETOKEN_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_),
                                   "copy of states");
    const int64_t d_model = shape_.model.d_model;
    for (int32_t r = 0; r < rows; ++r) {
      std::copy_n(host_states_.as<float>() + int64_t{r} * shape_.width, d_model,
                  states + (done + r) * d_model);
    }
  }
  return DeviceStatus();
}

}  // namespace foretoken::device
