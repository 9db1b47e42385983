#include "tests/support/cuda_on_cpu/cuda_runtime.h"

#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/support/cuda_on_cpu/graphs.h"

namespace {

namespace machine = foretoken::cuda_on_cpu;

// "Free memory": what KV memory may take where the caller does not say.
constexpr size_t kFreeBytes = (size_t{1} << 30) + (size_t{8} << 20);

int failing_instantiations = 0, failing_launches = 0;
int graph_launches = 0, graphs = 0;
machine::Device present_device;
int early_starts = 0;
cudaError_t driver_error = cudaSuccess;
int driver_version = 13000;
bool broken_device = false;
int launches_left = -1;  // until it breaks; -1: for ever
// Dynamic shared memory that a kernel may have, where it asked for more than
// kSharedBytesUnasked.
constexpr size_t kSharedBytesUnasked = 48 << 10;
std::map<const void*, size_t> shared_bytes_asked;

// What was launched runs when somebody waits for it.
cudaError_t Finish() {
  if (broken_device) {
    machine::DropLaunched();
    return cudaErrorIllegalAddress;
  }
  machine::RunLaunched();
  return cudaSuccess;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "error";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaMalloc(void** p, size_t bytes) {
  *p = machine::AllocateDevice(bytes);
  return *p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  (void)Finish();
  return machine::FreeDevice(p) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMallocHost(void** p, size_t bytes) {
  return cudaMalloc(p, bytes);
}
cudaError_t cudaFreeHost(void* p) { return cudaFree(p); }
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes,
                            cudaStream_t stream) {
  if (stream == nullptr || stream->capture != nullptr) {
    return cudaErrorInvalidValue;
  }
  if (!machine::IsDeviceMemory(p, bytes)) return cudaErrorInvalidValue;
  const cudaError_t error = Finish();
  if (error == cudaSuccess) std::memset(p, value, bytes);
  return error;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  const void* device = kind == cudaMemcpyHostToDevice ? to : from;
  if (stream == nullptr || stream->capture != nullptr ||
      !machine::IsDeviceMemory(device, bytes)) {
    return cudaErrorInvalidValue;
  }
  const cudaError_t error = Finish();
  if (error == cudaSuccess) std::memcpy(to, from, bytes);
  return error;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = kFreeBytes;
  *total_bytes = 2 * kFreeBytes;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  if (driver_error == cudaSuccess) *count = 1;
  return driver_error;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver_version;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::snprintf(properties->name, sizeof(properties->name), "CPU");
  properties->major = present_device.major;
  properties->minor = present_device.minor;
  properties->sharedMemPerBlockOptin = present_device.shared_bytes;
  properties->totalGlobalMem = 2 * kFreeBytes;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CudaStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
// (Illegal while the stream captures.)
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return stream->capture == nullptr ? Finish() : cudaErrorInvalidValue;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return cudaStreamSynchronize(stream);
}
cudaError_t cudaFuncGetName(const char** name, const void*) {
  *name = "kernel";
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel,
                                 cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
    return cudaSuccess;
  }
  if (value < 0 || value > static_cast<int>(present_device.shared_bytes)) {
    return cudaErrorInvalidValue;
  }
  shared_bytes_asked[kernel] = value;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->capture = new CudaGraph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->capture;
  stream->capture = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned) {
  if (failing_instantiations > 0) {
    --failing_instantiations;
    return cudaErrorMemoryAllocation;
  }
  *made = new CudaGraph(*graph);
  ++graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  if (broken_device) return cudaErrorIllegalAddress;
  if (failing_launches > 0) {
    --failing_launches;
    return cudaErrorMemoryAllocation;
  }
  ++graph_launches;
  for (const auto& kernel : graph->kernels) machine::Launch(kernel);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  --graphs;
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new int(0);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return Finish(); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1.0f;
  return cudaSuccess;
}

namespace foretoken::cuda_on_cpu {

cudaError_t CheckLaunch(const cudaLaunchConfig_t& config, const void* kernel) {
  if (config.gridDim.y > 65535 || config.gridDim.z > 65535) {
    return cudaErrorInvalidValue;
  }
  if (broken_device) return cudaErrorIllegalAddress;
  const auto asked = shared_bytes_asked.find(kernel);
  const size_t allowed =
      std::max(asked == shared_bytes_asked.end() ? 0 : asked->second,
               kSharedBytesUnasked);
  if (config.dynamicSmemBytes >
      std::min(allowed, present_device.shared_bytes)) {
    return cudaErrorInvalidValue;
  }
  if (config.numAttrs > 0) {
    if (present_device.major < 9) return cudaErrorInvalidValue;
    ++early_starts;
  }
  return cudaSuccess;
}

void FailGraphInstantiations(int count) { failing_instantiations = count; }
void FailGraphLaunches(int count) { failing_launches = count; }
int GraphLaunches() { return graph_launches; }
int Graphs() { return graphs; }
void SetDevice(const Device& device) {
  present_device = device;
  shared_bytes_asked.clear();
}
const Device& PresentDevice() { return present_device; }
int EarlyStarts() { return early_starts; }
void SetDriver(int error, int version) {
  driver_error = static_cast<cudaError_t>(error);
  driver_version = version;
}
void BreakDevice(bool broken) { broken_device = broken; }
void BreakDeviceAfter(int kernels) { launches_left = kernels; }
void CountLaunch() {
  if (launches_left > 0 && --launches_left == 0) broken_device = true;
}

}  // namespace foretoken::cuda_on_cpu
