// The module's engine and what it exports. See device_engine.h.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include "common/infer/cuda/device_engine.h"
#include "common/infer/cuda/kernels/attention.h"
#include "common/infer/cuda/kernels/cuda_check.h"
#include "common/infer/cuda/kernels/device_support.h"
#include "common/infer/cuda/kernels/engine_shape.h"
#include "common/infer/cuda/kernels/gemm.h"
#include "common/infer/cuda/kernels/norm_rope.h"
#include "common/infer/cuda/kernels/pass_layout.h"
#include "common/infer/cuda/kernels/pass_runner.h"
#include "common/infer/cuda/kernels/sampler.h"
#include "common/infer/cuda/kernels/walk_commit.h"
#include "common/infer/cuda/kernels/weight_store.h"

namespace foretoken::device {
namespace {

// Increment with every change that may change a bit of output.
constexpr int kKernelVersion = 2;

constexpr ModuleCode kModuleCode = {  // cmake/Cuda.cmake
    {FORETOKEN_CUDA_MACHINE_CODE},
    FORETOKEN_CUDA_PTX,
    FORETOKEN_CUDA_WARPGROUPS};

// No exception leaves the module.
// The caller may be built with other C++ flags, and an exception must not cross
// a C interface.
template <typename Call>
DeviceStatus Guarded(const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return MakeStatus(kResourceExhausted, "out of host memory");
  } catch (...) {
    return MakeStatus(kInternal, "unknown exception in the GPU module");
  }
}

// Partial results of attention, on a device that has room for more than the
// options' least: then the rows of a long prompt are one slab. 0: no more.
int64_t AttentionBytesOf(int64_t memory_bytes) {
  size_t free_bytes = 0, total_bytes = 0;
  // Small devices keep the options' least: there the memory is better used for
  // KV.
  if (memory_bytes < int64_t{32} << 30 ||
      cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
    return 0;
  }
  return std::min(memory_bytes / 128, static_cast<int64_t>(free_bytes) / 64);
}

class CudaEngine : public DeviceEngine {
 public:
  ~CudaEngine() override {
    // Destructors of the members free memory on the current device, which
    // another engine of the process may have changed.
    (void)cudaSetDevice(options_.device);
    runner_.reset();
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  DeviceStatus Create(const DeviceShape& shape, const DeviceOptions& options) {
    options_ = options;
    // Twice: the shape is checked before the device is touched, and made again
    // once the device's memory decides attention_bytes.
    FORETOKEN_DEVICE_RETURN_IF_ERROR(
        EngineShape::Create(shape, options, &shape_));
    FORETOKEN_DEVICE_RETURN_IF_ERROR(OpenDevice());
    options_.attention_bytes =
        std::max(options.attention_bytes, AttentionBytesOf(memory_bytes_));
    FORETOKEN_DEVICE_RETURN_IF_ERROR(
        EngineShape::Create(shape, options_, &shape_));
    // Non-blocking: another engine's work on the default stream must not be
    // waited for.
    FORETOKEN_CUDA_RETURN_IF_ERROR(
        cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    // Sets the shared memory that kernels may use and loads them, now rather
    // than in the first pass.
    FORETOKEN_CUDA_RETURN_IF_ERROR(PrepareGemm(Limits()),
                                   "kernels of the products");
    FORETOKEN_CUDA_RETURN_IF_ERROR(PrepareAttention(Limits()),
                                   "kernels of attention");
    FORETOKEN_CUDA_RETURN_IF_ERROR(PrepareNormRope(), "kernels of rows");
    FORETOKEN_CUDA_RETURN_IF_ERROR(PrepareSampler(), "kernel of the sampler");
    FORETOKEN_CUDA_RETURN_IF_ERROR(PrepareWalkCommit(), "kernels of the walk");
    return weights_.Create(shape_, stream_);
  }

  int64_t pages() const override {
    return runner_ == nullptr ? 0 : runner_->pages();
  }
  int64_t weight_bytes_per_pass() const override {
    return shape_.weight_bytes();
  }
  const char* name() const override { return name_; }
  const char* numerics() const override { return numerics_; }

  DeviceStatus Upload(DeviceTensor tensor, int32_t layer, const void* data,
                      int64_t rows, int64_t cols) override {
    return Guarded([&]() -> DeviceStatus {
      FORETOKEN_DEVICE_RETURN_IF_ERROR(UseDevice());
      return weights_.Upload(tensor, layer, data, rows, cols, stream_);
    });
  }

  DeviceStatus FinishWeights(const float* cosines,
                             const float* sines) override {
    return Guarded([&]() -> DeviceStatus {
      FORETOKEN_DEVICE_RETURN_IF_ERROR(UseDevice());
      FORETOKEN_DEVICE_RETURN_IF_ERROR(
          weights_.Finish(cosines, sines, stream_));
      // Programmatic launches (overlap) exist from Hopper on.
      auto runner = std::make_unique<PassRunner>(
          shape_, weights_, stream_, Limits(), options_.graphs,
          options_.overlap && capability_ >= kOverlapCapability);
      FORETOKEN_DEVICE_RETURN_IF_ERROR(runner->Create(options_));
      // Errors of the allocations and fills show here, while the engine can
      // still be refused.
      FORETOKEN_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_),
                                     "memory of a pass");
      runner_ = std::move(runner);
      return DeviceStatus();
    });
  }

  DeviceStatus Forward(const DevicePass& pass, DeviceToken* tokens,
                       DeviceWalk* walks, HostWork& meanwhile) override {
    return OnDevice([&]() -> DeviceStatus {
      // On the host, for every pass: kernels trust their indices, and one bad
      // index could read another caller's KV.
      FORETOKEN_DEVICE_RETURN_IF_ERROR(
          CheckPass(pass, shape_, runner_->pages()));
      return runner_->Run(pass, tokens, walks, meanwhile);
    });
  }

  DeviceStatus CopyKv(const int32_t* from, const int32_t* to,
                      int32_t count) override {
    return OnDevice([&] { return runner_->CopyKv(from, to, count); });
  }

  DeviceStatus Logits(int32_t output, float* logits) override {
    return OnDevice([&] { return runner_->Logits(output, logits); });
  }

  DeviceStatus States(int32_t first, int32_t count, float* states) override {
    return OnDevice([&] { return runner_->States(first, count, states); });
  }

  DeviceStatus MeasureCopyBandwidth(double* bytes_per_second) override {
    return Guarded([&]() -> DeviceStatus {
      FORETOKEN_DEVICE_RETURN_IF_ERROR(UseDevice());
      *bytes_per_second = 0.0;
      // Start with several times the L2 and halve until the copies fit.
      for (int64_t bytes = int64_t{1} << 30; bytes >= int64_t{1} << 27;
           bytes /= 2) {
        const DeviceStatus status = TimeCopies(bytes, bytes_per_second);
        if (status.code != kResourceExhausted) return status;
      }
      return MakeStatus(kResourceExhausted, "no memory is left for copies");
    });
  }

 private:
  DeviceStatus OpenDevice();
  DeviceLimits Limits() const {
    return {shared_bytes_,
            kModuleCode.warpgroups && capability_ == kWarpgroupCapability,
            multiprocessors_};
  }
  DeviceStatus UseDevice() const {
    return CheckCuda(cudaSetDevice(options_.device), "choice of the device");
  }
  // Calls `call`, for which the weights must be complete. A failed wait after
  // it means that the error stays (CUDA's sticky errors): UNAVAILABLE.
  template <typename Call>
  DeviceStatus OnDevice(const Call& call) const {
    return Guarded([&]() -> DeviceStatus {
      // Called before FinishWeights: a fault of ours, reported without touching
      // the device.
      if (runner_ == nullptr) {
        return MakeStatus(kFailedPrecondition, "the weights are not complete");
      }
      DeviceStatus status = UseDevice();
      if (status.ok()) status = call();
      if (status.ok() || (!runner_->hangs() &&
                          cudaStreamSynchronize(stream_) == cudaSuccess)) {
        return status;
      }
      // Clears what can be cleared; a sticky error stays.
      (void)cudaGetLastError();
      return MakeStatus(kUnavailable, "the device has failed: %s",
                        status.message);
    });
  }
  DeviceStatus TimeCopies(int64_t bytes, double* bytes_per_second) const;

  EngineShape shape_;
  DeviceOptions options_;
  int32_t shared_bytes_ = 0;  // that a thread block can have
  int64_t memory_bytes_ = 0;  // of the device
  int32_t multiprocessors_ = 1;
  Capability capability_ = 0;
  char name_[256] = {};
  char numerics_[512] = {};
  cudaStream_t stream_ = nullptr;
  WeightStore weights_;
  std::unique_ptr<PassRunner> runner_;
};

// No GPU is UNAVAILABLE, so that --backend=auto takes the CPU; a driver that
// does not start is FAILED_PRECONDITION, so that it does not.
DeviceStatus CountDevices(int* count) {
  *count = 0;
  const cudaError_t error = cudaGetDeviceCount(count);
  if (error == cudaSuccess && *count > 0) return DeviceStatus();
  // The error was read; left uncleared, a later call would report it as its
  // own.
  (void)cudaGetLastError();
  if (error == cudaSuccess || error == cudaErrorNoDevice) {
    return MakeStatus(kUnavailable, "no GPU: there is none");
  }
  // Without a driver the runtime reports different errors by version; the
  // driver's version tells.
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return MakeStatus(kUnavailable, "no GPU: there is no driver");
  }
  if (error == cudaErrorInsufficientDriver) {
    return MakeStatus(kFailedPrecondition,
                      "the driver is for CUDA %d.%d, want %d.%d or later "
                      "(--backend=cpu runs without a GPU)",
                      driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                      CUDART_VERSION % 1000 / 10);
  }
  return MakeStatus(kFailedPrecondition,
                    "the driver does not start: %s (%s; --backend=cpu runs "
                    "without a GPU)",
                    cudaGetErrorName(error), cudaGetErrorString(error));
}

DeviceStatus CudaEngine::OpenDevice() {
  int count = 0;
  FORETOKEN_DEVICE_RETURN_IF_ERROR(CountDevices(&count));
  // UNAVAILABLE, as without any GPU.
  if (options_.device < 0 || options_.device >= count) {
    return MakeStatus(kUnavailable, "no GPU %d, there are %d", options_.device,
                      count);
  }
  FORETOKEN_DEVICE_RETURN_IF_ERROR(UseDevice());
  cudaDeviceProp properties;
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaGetDeviceProperties(&properties, options_.device),
      "properties of the device");
  capability_ = 10 * properties.major + properties.minor;
  if (capability_ < kOldestCapability) {
    return MakeStatus(kUnavailable,
                      "%s has compute capability %d.%d, want %d.%d or later",
                      properties.name, properties.major, properties.minor,
                      kOldestCapability / 10, kOldestCapability % 10);
  }
  if (!kModuleCode.Runs(capability_)) {
    return MakeStatus(kUnavailable,
                      "%s has compute capability %d.%d, for which this module "
                      "was not built (FORETOKEN_CUDA_ARCHITECTURES)",
                      properties.name, properties.major, properties.minor);
  }
  std::snprintf(name_, sizeof(name_), "%s", properties.name);
  shared_bytes_ = static_cast<int32_t>(properties.sharedMemPerBlockOptin);
  memory_bytes_ = static_cast<int64_t>(properties.totalGlobalMem);
  multiprocessors_ = properties.multiProcessorCount;
  // Everything that changes a bit of the results: kernels, the shapes of sums,
  // runtime and device generation.
  std::snprintf(numerics_, sizeof(numerics_),
                "kernels=%d;mma=m16n8k16;groups=%d,%d,%d;norm=%d;"
                "attention=%d,%d,%d;runtime=%d;capability=%d.%d",
                kKernelVersion, shape_.qkv.groups,
                shape_.attention_output.groups, shape_.down.groups,
                kNormThreads, kDevicePageTokens, kChunkBlocks, kEvenChunks,
                CUDART_VERSION, properties.major, properties.minor);
  if (kModuleCode.HasMachineCode(capability_)) return DeviceStatus();
  // The driver compiles the kernels, so its version is part of the numerics.
  int driver = 0;
  FORETOKEN_CUDA_RETURN_IF_ERROR(cudaDriverGetVersion(&driver),
                                 "version of the driver");
  const size_t used = std::strlen(numerics_);
  std::snprintf(numerics_ + used, sizeof(numerics_) - used, ";driver=%d",
                driver);
  return DeviceStatus();
}

DeviceStatus CudaEngine::TimeCopies(int64_t bytes,
                                    double* bytes_per_second) const {
  constexpr int kCopies = 10;
  DeviceMemory from, to;
  FORETOKEN_DEVICE_RETURN_IF_ERROR(
      from.Allocate(bytes, "memory for copies", stream_));
  FORETOKEN_DEVICE_RETURN_IF_ERROR(
      to.Allocate(bytes, "memory for copies", stream_));
  struct Event {
    cudaEvent_t event = nullptr;
    ~Event() {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
  } begin, end;
  FORETOKEN_CUDA_RETURN_IF_ERROR(cudaEventCreate(&begin.event), "event");
  FORETOKEN_CUDA_RETURN_IF_ERROR(cudaEventCreate(&end.event), "event");
  float best_ms = 0.0f;
  for (int i = 0; i <= kCopies; ++i) {
    FORETOKEN_CUDA_RETURN_IF_ERROR(cudaEventRecord(begin.event, stream_),
                                   "event");
    FORETOKEN_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(to.as<void>(), from.as<void>(), bytes,
                        cudaMemcpyDeviceToDevice, stream_),
        "copies");
    FORETOKEN_CUDA_RETURN_IF_ERROR(cudaEventRecord(end.event, stream_),
                                   "event");
    FORETOKEN_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(end.event), "copies");
    float ms = 0.0f;
    FORETOKEN_CUDA_RETURN_IF_ERROR(
        cudaEventElapsedTime(&ms, begin.event, end.event), "event");
    // The first copy warms up.
    if (i == 1 || (i > 1 && ms < best_ms)) best_ms = ms;
  }
  // Twice: a copy reads and writes each byte.
  if (best_ms > 0.0f) *bytes_per_second = 2.0 * bytes / (best_ms * 1e-3);
  return DeviceStatus();
}

}  // namespace
}  // namespace foretoken::device

#define FORETOKEN_EXPORT extern "C" __attribute__((visibility("default")))

FORETOKEN_EXPORT uint32_t ForetokenDeviceAbi() { return foretoken::kDeviceAbi; }

FORETOKEN_EXPORT foretoken::DeviceStatus ForetokenCreateDeviceEngine(
    const foretoken::DeviceShape* shape,
    const foretoken::DeviceOptions* options, foretoken::DeviceEngine** engine) {
  *engine = nullptr;
  return foretoken::device::Guarded([&]() -> foretoken::DeviceStatus {
    auto made = std::make_unique<foretoken::device::CudaEngine>();
    FORETOKEN_DEVICE_RETURN_IF_ERROR(made->Create(*shape, *options));
    *engine = made.release();
    return foretoken::DeviceStatus();
  });
}

FORETOKEN_EXPORT void ForetokenDeleteDeviceEngine(
    foretoken::DeviceEngine* engine) {
  delete engine;
}
