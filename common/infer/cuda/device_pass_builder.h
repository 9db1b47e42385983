// A pass plan in the device engine's terms: pages and rows become slots of KV
// memory, sampling states become plain numbers.
//
// Owned by one thread; its buffers keep their capacity from pass to pass.
#ifndef FORETOKEN_COMMON_INFER_CUDA_DEVICE_PASS_BUILDER_H_
#define FORETOKEN_COMMON_INFER_CUDA_DEVICE_PASS_BUILDER_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/infer/backend.h"
#include "common/infer/cuda/device_engine.h"
#include "common/infer/kv_cache.h"
#include "common/infer/pass_plan.h"

namespace foretoken {

class DevicePassBuilder {
 public:
  // `pages` of KV memory; scratch slots follow the last.
  explicit DevicePassBuilder(int64_t pages) : pages_(pages) {}

  // The pass that `plan` was built from. Sessions are asked to commit ahead as
  // far as `cache` has given them pages. The spans of the result are borrowed
  // from this object until the next call.
  DevicePass Build(const PassPlan& plan, absl::Span<const PassSession> pass,
                   const KvCache& cache);

  // The slot of a session's token at `position`, which it must have a page for.
  static int32_t SlotOf(absl::Span<const int32_t> page_table, int64_t position);
  // The slot of a global row of the present pass.
  int32_t ScratchSlot(int32_t row) const {
    return static_cast<int32_t>(pages_ * kDevicePageTokens) + row;
  }

 private:
  void Clear();
  void AddRows(const PassPlan& plan);
  void AddTiles(const PassPlan& plan);
  void AddCommitSlots(const PassPlan& plan, const PlanSession& source,
                      absl::Span<const int32_t> page_table,
                      DeviceSession& session);
  // Which outputs report logprobs.
  void AddLogprobs(const PlanSession& planned, const PassSession& source);
  // Which counts, bans and sampling the outputs of a session have.
  void AddSampling(const PlanSession& planned, const PassSession& source,
                   DeviceSession& session);
  void AddPathCounts(const PassSession& source, int32_t row,
                     DeviceOutput& output);

  const int64_t pages_;
  std::vector<DeviceRow> rows_;
  std::vector<DeviceSession> sessions_;
  std::vector<int32_t> page_list_;
  std::vector<int32_t> row_tiles_;
  std::vector<DeviceTile> tiles_;
  std::vector<DeviceOutput> outputs_;
  std::vector<DeviceSampling> samplings_;
  std::vector<DeviceCount> counts_;
  std::vector<DeviceBias> biases_;
  std::vector<int32_t> commit_slots_;
  std::vector<TokenId> path_;
  absl::flat_hash_map<TokenId, int32_t> path_counts_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CUDA_DEVICE_PASS_BUILDER_H_
