// The CUDA backend over the device's twin, with eyes on what it asks for.
#ifndef FORETOKEN_TESTS_UNIT_INFER_CUDA_TWIN_BACKEND_H_
#define FORETOKEN_TESTS_UNIT_INFER_CUDA_TWIN_BACKEND_H_

#include <memory>
#include <utility>
#include <vector>

#include "common/infer/cuda/cuda_backend.h"
#include "common/infer/model_weights.h"
#include "gtest/gtest.h"
#include "tests/support/cuda_twin/device_twin.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {

// What a test sees of the engine, and may forbid it.
struct EngineLog {
  bool commit_ahead = true;  // false: no pass is walked
  int commits = 0;           // explicit ones
  int commit_rows = 0;
  int passes = 0;
  bool computing = false;              // a pass, which has not returned
  std::vector<int32_t> commit_counts;  // of the last pass, by session
  std::vector<int32_t> logprobs;       // of the last pass, by output
};

class WatchedEngine : public DeviceEngine {
 public:
  WatchedEngine(DeviceEnginePtr engine, EngineLog* log)
      : engine_(std::move(engine)), log_(log) {}

  int64_t pages() const override { return engine_->pages(); }
  int64_t weight_bytes_per_pass() const override {
    return engine_->weight_bytes_per_pass();
  }
  const char* name() const override { return engine_->name(); }
  const char* numerics() const override { return engine_->numerics(); }
  DeviceStatus Upload(DeviceTensor tensor, int32_t layer, const void* data,
                      int64_t rows, int64_t cols) override {
    return engine_->Upload(tensor, layer, data, rows, cols);
  }
  DeviceStatus FinishWeights(const float* cosines,
                             const float* sines) override {
    return engine_->FinishWeights(cosines, sines);
  }
  DeviceStatus Forward(const DevicePass& pass, DeviceToken* tokens,
                       DeviceWalk* walks, HostWork& meanwhile) override {
    ++log_->passes;
    log_->commit_counts.clear();
    log_->logprobs.clear();
    for (int32_t i = 0; i < pass.outputs.size; ++i) {
      log_->logprobs.push_back(pass.outputs.data[i].logprobs);
    }
    std::vector<DeviceSession> sessions(
        pass.sessions.data, pass.sessions.data + pass.sessions.size);
    for (DeviceSession& session : sessions) {
      log_->commit_counts.push_back(session.commit_count);
      if (!log_->commit_ahead) session.commit_count = 0;
    }
    DevicePass changed = pass;
    changed.sessions.data = sessions.data();
    log_->computing = true;
    const DeviceStatus status =
        engine_->Forward(changed, tokens, walks, meanwhile);
    log_->computing = false;
    return status;
  }
  DeviceStatus CopyKv(const int32_t* from, const int32_t* to,
                      int32_t count) override {
    ++log_->commits;
    log_->commit_rows += count;
    return engine_->CopyKv(from, to, count);
  }
  DeviceStatus Logits(int32_t output, float* logits) override {
    return engine_->Logits(output, logits);
  }
  DeviceStatus States(int32_t first, int32_t count, float* states) override {
    return engine_->States(first, count, states);
  }
  DeviceStatus MeasureCopyBandwidth(double* bytes_per_second) override {
    return engine_->MeasureCopyBandwidth(bytes_per_second);
  }

 private:
  const DeviceEnginePtr engine_;
  EngineLog* const log_;
};

inline CudaOptions TwinOptions() {
  CudaOptions options;
  options.max_rows = 320;
  options.kv_cache_bytes = int64_t{2} << 20;
  return options;
}

inline absl::StatusOr<std::unique_ptr<Backend>> TryTwinBackend(
    const ModelWeights& weights, const CudaOptions& options,
    EngineLog* log = nullptr) {
  return MakeCudaBackend(
      weights,
      [log](const DeviceShape& shape,
            const DeviceOptions& device) -> absl::StatusOr<DeviceEnginePtr> {
        auto twin = MakeDeviceTwin(shape, device);
        if (!twin.ok() || log == nullptr) return twin;
        return DeviceEnginePtr(new WatchedEngine(*std::move(twin), log),
                               [](DeviceEngine* engine) { delete engine; });
      },
      options);
}

inline std::unique_ptr<Backend> MakeTwinBackend(
    const ModelConfig& config, const CudaOptions& options,
    EngineLog* log = nullptr, WeightType type = WeightType::kBFloat16) {
  const auto weights = ModelWeights::Random(config, type, 7);
  EXPECT_THAT(weights, IsOk());
  auto backend = TryTwinBackend(**weights, options, log);
  EXPECT_THAT(backend, IsOk());
  return *std::move(backend);
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_INFER_CUDA_TWIN_BACKEND_H_
