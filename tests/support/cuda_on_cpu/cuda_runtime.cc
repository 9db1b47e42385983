#include "tests/support/cuda_on_cpu/cuda_runtime.h"

#include <cstdio>
#include <cstdlib>

#include "tests/support/cuda_on_cpu/graphs.h"

namespace {

namespace machine = foretoken::cuda_on_cpu;

// "Free memory": what KV memory may take where the caller does not say.
constexpr size_t kFreeBytes = (size_t{1} << 30) + (size_t{8} << 20);

int failing_instantiations = 0, failing_launches = 0;
int graph_launches = 0, graphs = 0;
machine::Device present_device;
int early_starts = 0;
bool broken_device = false;
int launches_left = -1;  // until it breaks; -1: for ever

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
  std::memset(p, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  const void* device = kind == cudaMemcpyHostToDevice ? to : from;
  if (stream == nullptr || stream->capture != nullptr ||
      !machine::IsDeviceMemory(device, bytes)) {
    return cudaErrorInvalidValue;
  }
  if (broken_device) return cudaErrorIllegalAddress;
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = kFreeBytes;
  *total_bytes = 2 * kFreeBytes;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
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
  if (broken_device) return cudaErrorIllegalAddress;
  return stream->capture == nullptr ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return cudaStreamSynchronize(stream);
}
cudaError_t cudaFuncGetName(const char** name, const void*) {
  *name = "kernel";
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
  for (const auto& kernel : graph->kernels) kernel();
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
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1.0f;
  return cudaSuccess;
}

namespace foretoken::cuda_on_cpu {

void FailGraphInstantiations(int count) { failing_instantiations = count; }
void FailGraphLaunches(int count) { failing_launches = count; }
int GraphLaunches() { return graph_launches; }
int Graphs() { return graphs; }
void SetDevice(const Device& device) { present_device = device; }
const Device& PresentDevice() { return present_device; }
int EarlyStarts() { return early_starts; }
void CountEarlyStart() { ++early_starts; }
void BreakDevice(bool broken) { broken_device = broken; }
void BreakDeviceAfter(int kernels) { launches_left = kernels; }
bool IsBroken() { return broken_device; }
void CountLaunch() {
  if (launches_left > 0 && --launches_left == 0) broken_device = true;
}

}  // namespace foretoken::cuda_on_cpu
