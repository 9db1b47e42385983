// One pass in one piece of memory: a header, then all arrays of a DevicePass,
// so that it travels in one copy. Plain host code, but for the
// header's accessors, which the kernels use.
//
// A device buffer begins with the header; kernels read sizes and places from
// it, so that one CUDA graph serves passes of many sizes.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_PASS_LAYOUT_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_PASS_LAYOUT_H_

#include <cstdint>

#include "common/infer/cuda/device_engine.h"
#include "common/infer/cuda/kernels/attention_index.h"
#include "common/infer/cuda/kernels/engine_shape.h"

namespace foretoken::device {

// Places are bytes from the header's own first.
struct PassHeader {
  int32_t rows, sessions, outputs, tasks, commits, queries;
  int32_t chunks;  // of the longest row
  int32_t span;    // chunks that a block of attention takes one after the other
  int64_t rows_at, sessions_at, pages_at, row_tiles_at, tiles_at, outputs_at,
      samplings_at, counts_at, biases_at, commit_slots_at, tasks_at, saved_at;

  template <typename T>
  FORETOKEN_HOST_DEVICE const T* At(int64_t place) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(this) +
                                      place);
  }
  FORETOKEN_HOST_DEVICE const DeviceRow* row() const {
    return At<DeviceRow>(rows_at);
  }
  FORETOKEN_HOST_DEVICE const DeviceSession* session() const {
    return At<DeviceSession>(sessions_at);
  }
  FORETOKEN_HOST_DEVICE const int32_t* page() const {
    return At<int32_t>(pages_at);
  }
  FORETOKEN_HOST_DEVICE const int32_t* row_tile() const {
    return At<int32_t>(row_tiles_at);
  }
  FORETOKEN_HOST_DEVICE const DeviceTile* tile() const {
    return At<DeviceTile>(tiles_at);
  }
  FORETOKEN_HOST_DEVICE const DeviceOutput* output() const {
    return At<DeviceOutput>(outputs_at);
  }
  FORETOKEN_HOST_DEVICE const DeviceSampling* sampling() const {
    return At<DeviceSampling>(samplings_at);
  }
  FORETOKEN_HOST_DEVICE const DeviceCount* count() const {
    return At<DeviceCount>(counts_at);
  }
  FORETOKEN_HOST_DEVICE const DeviceBias* bias() const {
    return At<DeviceBias>(biases_at);
  }
  FORETOKEN_HOST_DEVICE const int32_t* commit_slot() const {
    return At<int32_t>(commit_slots_at);
  }
  FORETOKEN_HOST_DEVICE const AttentionTask* task() const {
    return At<AttentionTask>(tasks_at);
  }
  // [outputs]: the first of an output's logits that are saved while penalties,
  // bias and bans are on them.
  FORETOKEN_HOST_DEVICE const int64_t* saved() const {
    return At<int64_t>(saved_at);
  }
};

// Every index of `pass` lies inside what it points into. INVALID_ARGUMENT says
// which does not.
DeviceStatus CheckPass(const DevicePass& pass, const EngineShape& shape,
                       int64_t pages);

struct PassLayout {
  // `pass` must have passed CheckPass.
  PassLayout(const DevicePass& pass, const EngineShape& shape);

  PassHeader header = {};
  int64_t bytes = 0;
  int64_t saved_logits = 0;
  int32_t session_tasks = 0;  // the most tasks of a session

  // Fills `buffer` of `bytes`, aligned to 16.
  void Write(const DevicePass& pass, const EngineShape& shape,
             void* buffer) const;
};

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_PASS_LAYOUT_H_
