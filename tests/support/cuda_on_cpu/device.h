// Which GPU the machine is, and what was asked of it. Owned by one thread.
#ifndef FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_DEVICE_H_
#define FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_DEVICE_H_

#include <cstddef>

namespace foretoken::cuda_on_cpu {

// As cudaDeviceProp has them. Launches that ask for more shared memory, or for
// an early start before 9.0, fail.
struct Device {
  int major = 9, minor = 0;
  size_t shared_bytes = 227 * 1024;  // of a thread block
};

// Sets the device that engines made from now on find.
void SetDevice(const Device& device);
const Device& PresentDevice();

// How the driver answers when it is asked for devices: an error (0: none), and
// its version (0: there is none).
void SetDriver(int error, int version);

// From then on every copy, launch and wait fails, as after a kernel's fault.
void BreakDevice(bool broken);
// Breaks it with the kernel of that number, from 1.
void BreakDeviceAfter(int kernels);
void CountLaunch();  // by the runtime

// Kernels that were allowed to begin before those ahead of them had ended.
int EarlyStarts();

}  // namespace foretoken::cuda_on_cpu

#endif  // FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_DEVICE_H_
