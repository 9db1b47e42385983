// A slow GPU on the CPU, so that the kernels' own source runs in tests where
// there is no device: each thread of a block is a fiber, in an order drawn anew
// at every step, so that what a missing barrier would spoil is spoilt here too.
// The blocks of a grid run one after the other, shuffled.
//
// A grid that may begin early does so: some of its blocks run up to their wait
// for the grids ahead before these have run, and read what memory held then.
//
// Shared memory begins as NaN. An asynchronous copy happens at once or when it
// is waited for, as a coin says. A warp or a block whose threads do not meet at
// the same point ends the process with a message.
//
// What it cannot show: speed, the matrix unit's own rounding, and blocks of one
// grid that run at the same time. Owned by one thread.
#ifndef FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_MACHINE_H_
#define FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_MACHINE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace foretoken::cuda_on_cpu {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

// Of the fiber that runs.
const Index& ThreadIndex();
const Index& BlockIndex();
const Index& GridSize();
int Lane();

inline constexpr size_t kMaxPayload = 64;
using WarpPayloads = std::array<std::array<std::byte, kMaxPayload>, 32>;

// Meets the other 31 lanes at the same operation (`what` is compared); answers
// what all of them brought, valid until the lane's next meeting but one.
const WarpPayloads& MeetWarp(const char* what, const void* payload,
                             size_t bytes);
void MeetBlock();

// Waits until the grids ahead are done, if the block began early.
void WaitForGridsAhead();

// The block's shared memory: what the launch asked for, by address; what the
// kernel declares, `bytes` of it.
char* SharedMemory();
void* StaticShared(size_t bytes);

// One 16-byte copy of this thread, to an address of shared memory; zeros if
// `from` is nullptr. In the present group.
void AddCopy(uint32_t to, const void* from);
void CommitCopyGroup();
void WaitCopyGroups(int pending);

// Barriers of eight bytes in shared memory: a phase ends when the threads have
// arrived and the bytes have come. A thread that waits too long ends the
// process.
void InitBarrier(uint32_t barrier, int arrivals);
void ArriveAtBarrier(uint32_t barrier, int expected_bytes);
void WaitAtBarrier(uint32_t barrier, uint32_t parity);
// Happens at once, or while somebody waits at a barrier.
void AddBulkCopy(uint32_t to, const void* from, int bytes, uint32_t barrier);

// Products of this thread that are under way: they happen when their group is
// waited for, and not before.
void AddProduct(std::function<void()> product);
void CommitProductGroup();
void WaitProductGroups(int pending);

struct Grid {
  Index size, block;
  size_t shared_bytes = 0;
  std::function<void()> thread;  // what every thread of every block does
  bool early = false;            // it may begin before the grids ahead are done
};

// Grids run in the order of their launches, when something waits for them.
void Launch(Grid grid);
void RunLaunched();
void DropLaunched();

// Memory of the device; whether [p, p + bytes) lies inside one piece.
void* AllocateDevice(size_t bytes);
bool FreeDevice(void* p);
bool IsDeviceMemory(const void* p, size_t bytes);

// Pieces that were not freed.
int DeviceAllocations();

// The allocation after `n` more fails; -1: none does.
void FailAllocationAfter(int n);

}  // namespace foretoken::cuda_on_cpu

#endif  // FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_MACHINE_H_
