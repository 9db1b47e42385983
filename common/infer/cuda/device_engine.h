// DeviceEngine: the interface between the CUDA backend and the GPU module.
// Plain types only, because the two sides are linked separately: the backend
// (sessions, pages, plans, errors; in the main binary, without CUDA) and the
// engine (memory, kernels, graphs; in a module library that is loaded when a
// GPU is asked for). A second implementation, the twin (device_twin.h), runs
// the same index arithmetic on the CPU, so that the backend is tested where
// there is no GPU.
//
// KV memory is a list of slots, one token each, all layers. Slot
// page * kDevicePageTokens + i is token i of a page; the slots after the last
// page are scratch: slot pages * kDevicePageTokens + r is row r of the present
// pass. Attention reads keys by blocks of kDevicePageTokens path positions:
// blocks that are committed whole as pages, the others as tiles, lists of slots
// in order of position (common/infer/pass_plan.h). A row reads the pages of its
// session and then its own tiles; sums over blocks go in ascending order.
//
// Rounding points: the residual stream, scores, softmax and sums are fp32;
// inputs of every matrix product, and the K and V that are kept, are rounded to
// the weights' type. Each output has one order of operations, independent of
// the other rows: the bits of a row depend on its own path alone.
//
// Owned by one thread, which makes every call.
#ifndef FORETOKEN_COMMON_INFER_CUDA_DEVICE_ENGINE_H_
#define FORETOKEN_COMMON_INFER_CUDA_DEVICE_ENGINE_H_

#include <cstdint>

namespace foretoken {

// Increment with every change of this header.
inline constexpr uint32_t kDeviceAbi = 10;

inline constexpr int32_t kDevicePageTokens = 32;
inline constexpr int32_t kDeviceTopTokens = 8;

// Values of absl::StatusCode: 0 is success, 8 RESOURCE_EXHAUSTED (out of
// memory), 3 INVALID_ARGUMENT, 12 UNIMPLEMENTED (no kernel for the shape), 14
// UNAVAILABLE (no GPU, or one that has failed for good), 13 INTERNAL.
struct DeviceStatus {
  int32_t code = 0;
  char message[504] = {};  // zero-terminated
  bool ok() const { return code == 0; }
};

enum class DeviceType : int32_t { kBFloat16 = 0, kFloat16 = 1 };

struct DeviceShape {
  int32_t d_model = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int32_t d_ff = 0, vocab = 0, max_positions = 0;
  float rms_norm_eps = 0;
  bool tied_embeddings = false, qkv_bias = false, output_bias = false;
  bool mlp_bias = false, qk_norm = false;
};

struct DeviceOptions {
  int32_t device = 0;  // CUDA ordinal
  DeviceType type = DeviceType::kBFloat16;
  // KV pages. 0: at most max_pages (0: no such limit) and half of the memory
  // that the weights leave, so that a second engine finds room on the device;
  // but min_pages where they fit beside a reserve.
  int64_t pages = 0, max_pages = 0, min_pages = 0;
  int32_t max_rows = 512;
  int32_t max_sessions = 256;
  // Memory for partial results of attention, rounded up to a power of two of
  // queries; a pass that needs more takes them in turns. A device of 32 GiB or
  // more gives a 128th of its memory, and a 64th of what is free at most, if
  // that is more. Changes no bit.
  int64_t attention_bytes = int64_t{128} << 20;
  bool graphs = true;  // CUDA graphs by tier of rows; changes no bit
  // Kernels may begin before those ahead of them have ended (programmatic
  // dependent launch); changes no bit.
  bool overlap = true;
};

enum class DeviceTensor : int32_t {
  kEmbedding,  // [vocab, d_model]; the output matrix too if tied
  kOutput,     // [vocab, d_model]
  kFinalNorm,  // [d_model]
  kAttentionNorm,
  kQuery,
  kKey,
  kValue,  // per layer from here on
  kQueryBias,
  kKeyBias,
  kValueBias,  // if qkv_bias
  kQueryNorm,
  kKeyNorm,  // [head_dim], if qk_norm
  kAttentionOutput,
  kAttentionOutputBias,
  kFeedForwardNorm,
  kGate,
  kUp,
  kGateBias,
  kUpBias,
  kDown,
  kDownBias,
};

struct DeviceRow {
  int32_t token = 0;
  int32_t position = 0;    // rotary position
  int32_t session = 0;     // index into sessions
  int32_t tile_begin = 0;  // into row_tiles
  int32_t tile_count = 0;  // at least 1: the row itself is its last key
  int32_t last_keys = 0;   // keys in the last tile, 1..32
  int32_t parent = -1;     // global row, -1 at the root; for the walk
  int32_t output = -1;     // index into outputs, -1: none
};

struct DeviceSession {
  int32_t page_begin = 0;  // into pages
  int32_t page_count = 0;  // blocks that are committed whole
  int32_t first_row = 0;
  int32_t rows = 0;
  // Slots of the next positions after the committed ones, into commit_slots:
  // the engine walks its own tokens from the root (the session's first row; a
  // row without output ends the walk, of equal siblings the first is taken) and
  // moves the KV of up to this many rows of that path there at once. 0: no
  // walk.
  int32_t commit_begin = 0;
  int32_t commit_count = 0;
  int32_t sampling = -1;  // into samplings, -1: arg max
};

struct DeviceTile {
  int32_t slots[kDevicePageTokens];  // -1 after the last key
};

// DESIGN: common/sampling/sampler.h says what each field does and in which
// order. Spans are indices into the pass's arrays.
struct DeviceSampling {
  float temperature = 0, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  uint64_t seed = 0;
  int32_t count_begin = 0, counts = 0;  // into counts: committed tokens
  int32_t bias_begin = 0, biases = 0;   // into biases
};

struct DeviceCount {
  int32_t token = 0;
  int32_t count = 0;  // in the output; 0: in the prompt only
};
struct DeviceBias {
  int32_t token = 0;
  float bias = 0;  // -infinity bans
};

struct DeviceOutput {
  int32_t row = 0;          // global
  int64_t position = 0;     // of the token that is drawn, for the noise
  int32_t count_begin = 0;  // into counts: tokens of the row's path with
  int32_t counts = 0;       // their counts in all, in place of the session's
  int32_t ban_begin = 0;    // into biases: end tokens banned by min_tokens
  int32_t bans = 0;
  int32_t logprobs = 0;  // not 0: also fills logprob and the top tokens
};

// Borrowed for the call.
template <typename T>
struct DeviceSpan {
  const T* data = nullptr;
  int32_t size = 0;
};

struct DevicePass {
  DeviceSpan<DeviceRow> rows;
  DeviceSpan<DeviceSession> sessions;
  DeviceSpan<int32_t> pages;
  DeviceSpan<int32_t> row_tiles;  // indices of tiles, ascending by position
  DeviceSpan<DeviceTile> tiles;
  DeviceSpan<DeviceOutput> outputs;
  DeviceSpan<DeviceSampling> samplings;
  DeviceSpan<DeviceCount> counts;
  DeviceSpan<DeviceBias> biases;
  DeviceSpan<int32_t> commit_slots;
};

struct DeviceToken {
  int32_t token = 0;
  int32_t bad = 0;  // every logit of the row is NaN
  // Log-softmax of the raw logits; only where the output asks for it.
  float logprob = 0;
  int32_t top_tokens[kDeviceTopTokens] = {};
  float top_logprobs[kDeviceTopTokens] = {};
};

struct DeviceWalk {
  int32_t length = 0;     // rows whose KV was moved into commit slots
  int32_t last_row = -1;  // global; the path is its ancestors
};

// What the caller does while the device computes. Does not throw.
class HostWork {
 public:
  virtual ~HostWork() = default;
  virtual void Run() = 0;
};

class DeviceEngine {
 public:
  virtual ~DeviceEngine() = default;

  // Both valid after FinishWeights.
  virtual int64_t pages() const = 0;
  virtual int64_t weight_bytes_per_pass() const = 0;
  // The device, for people.
  virtual const char* name() const = 0;
  // Kernel version, groups, compute capability: what may change a bit. Two
  // devices of one compute capability have the same.
  virtual const char* numerics() const = 0;

  // Row-major [rows, cols] in the type of DeviceOptions; norms and biases in
  // fp32. All tensors of the shape, each once, then FinishWeights, which also
  // takes the rotary table: cosines and sines, [max_positions][head_dim / 2].
  // `data` is borrowed for the call; the output matrix does not come where it
  // is tied. A tensor that is missing or of another shape is INTERNAL.
  virtual DeviceStatus Upload(DeviceTensor tensor, int32_t layer,
                              const void* data, int64_t rows, int64_t cols) = 0;
  virtual DeviceStatus FinishWeights(const float* cosines,
                                     const float* sines) = 0;

  // UNAVAILABLE from Forward, CopyKv, Logits or States: the device has failed
  // for good, as after a fault of a kernel. No engine of this process can use
  // it again.

  // One pass. `tokens` has room for pass.outputs.size, `walks` for
  // pass.sessions.size. Returns when both are filled and `meanwhile` has run,
  // which it does once the device has all its work; after an error it may not
  // have run.
  virtual DeviceStatus Forward(const DevicePass& pass, DeviceToken* tokens,
                               DeviceWalk* walks, HostWork& meanwhile) = 0;

  // Copies KV between slots, bit for bit: `from` in pages or scratch rows of
  // the last pass, `to` in pages, none of them in `from`; at most max_rows or a
  // page's worth. May complete after the call returns, but before the next pass
  // reads.
  virtual DeviceStatus CopyKv(const int32_t* from, const int32_t* to,
                              int32_t count) = 0;

  // Raw logits of output `output` of the last pass, fp32, [vocab].
  virtual DeviceStatus Logits(int32_t output, float* logits) = 0;

  // Final hidden states of `count` rows of the last pass from `first` on: after
  // the final norm and before rounding, fp32, [count, d_model]. Of any row,
  // with an output or without.
  virtual DeviceStatus States(int32_t first, int32_t count, float* states) = 0;

  // Bytes a second of a large device-to-device copy, read and write counted:
  // the yardstick of a pass. 0 where there is none.
  virtual DeviceStatus MeasureCopyBandwidth(double* bytes_per_second) = 0;
};

// The module's only exports, with C linkage. Create returns UNAVAILABLE where
// there is no driver or no such device, or the GPU is too old,
// FAILED_PRECONDITION where there is a driver and it does not start (it is
// older than the module's runtime, or the system is not ready), UNIMPLEMENTED
// for a shape without kernels and INVALID_ARGUMENT for an option out of bounds.
using DeviceAbiFunction = uint32_t (*)();
using DeviceCreateFunction = DeviceStatus (*)(const DeviceShape* shape,
                                              const DeviceOptions* options,
                                              DeviceEngine** engine);
using DeviceDeleteFunction = void (*)(DeviceEngine*);
inline constexpr char kDeviceAbiSymbol[] = "ForetokenDeviceAbi";
inline constexpr char kDeviceCreateSymbol[] = "ForetokenCreateDeviceEngine";
inline constexpr char kDeviceDeleteSymbol[] = "ForetokenDeleteDeviceEngine";

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CUDA_DEVICE_ENGINE_H_
