#include "tests/support/cuda_on_cpu/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/cuda_on_cpu/fiber.h"

namespace foretoken::cuda_on_cpu {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr size_t kMaxSharedBytes = 227 << 10;

[[noreturn]] void Fail(const char* what, const char* detail) {
  std::fprintf(stderr, "cuda_on_cpu: %s (%s)\n", what, detail);
  std::abort();
}

struct Copy {
  uint32_t to = 0;
  bool zero = false;
  std::array<char, 16> bytes;  // unused unless late
  const void* from = nullptr;
};

struct BulkCopy {
  uint32_t to = 0, barrier = 0;
  const void* from = nullptr;
  int bytes = 0;
};

// In eight bytes of shared memory.
struct Barrier {
  uint8_t parity = 0;  // of the phase that has not ended
  uint8_t expected = 0, missing = 0;
  uint8_t magic = 0;
  int32_t bytes = 0;  // that have not come
};
static_assert(sizeof(Barrier) == 8);
constexpr uint8_t kBarrierMagic = 0x5a;

struct Warp {
  WarpPayloads payloads[2];
  const char* what[2] = {nullptr, nullptr};
  int64_t arrivals = 0;
  bool asleep = false;  // in this round of the scheduler
};

struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack;
  Index index;
  int lane = 0;
  Warp* warp = nullptr;
  bool done = false;
  int64_t warp_meetings = 0, block_meetings = 0;
  // What it waits for: arrivals of its warp, or of the block.
  int64_t warp_target = 0, block_target = 0;
  std::vector<std::vector<Copy>> groups;  // committed
  std::vector<Copy> open;
  std::vector<std::vector<std::function<void()>>> products;
  std::vector<std::function<void()>> open_products;
};

struct Machine {
  std::vector<std::unique_ptr<Fiber>> fibers;  // kept for their stacks
  std::vector<Warp> warps;
  std::vector<char> shared = std::vector<char>(kMaxSharedBytes + 256);
  Fiber* current = nullptr;
  Context scheduler;
  Index block, grid;
  int threads = 0;
  size_t shared_bytes = 0;
  int64_t block_arrivals = 0;
  std::vector<BulkCopy> bulk_copies;  // under way
  const std::function<void()>* thread = nullptr;
  std::mt19937 random{12345};
  std::map<const char*, size_t> memory;
  int allocations_left = -1;
};

Machine& TheMachine() {
  static auto* machine = new Machine;
  return *machine;
}

void FiberMain() {
  Machine& m = TheMachine();
  (*m.thread)();
  if (!m.current->open.empty()) Fail("copies without a group", "at the end");
  if (!m.current->open_products.empty() || !m.current->products.empty()) {
    Fail("a thread ended before its products", "no wait");
  }
  m.current->done = true;
  Switch(m.current->context, m.scheduler);
}

void Yield() {
  Machine& m = TheMachine();
  Switch(m.current->context, m.scheduler);
}

bool Ready(const Machine& m, const Fiber& f) {
  return f.warp->arrivals >= f.warp_target &&
         m.block_arrivals >= f.block_target;
}

void RunBlock(Machine& m) {
  std::memset(SharedMemory(), 0xff, m.shared_bytes);
  m.block_arrivals = 0;
  m.bulk_copies.clear();
  m.warps.assign((m.threads + 31) / 32, Warp());
  std::vector<Fiber*> alive;
  for (int i = 0; i < m.threads; ++i) {
    Fiber& f = *m.fibers[i];
    f.lane = i % 32;
    f.warp = &m.warps[i / 32];
    f.done = false;
    f.warp_meetings = f.block_meetings = f.warp_target = f.block_target = 0;
    f.groups.clear();
    f.open.clear();
    f.products.clear();
    f.open_products.clear();
    Prepare(f.context, f.stack.get(), kStackBytes, FiberMain);
    alive.push_back(&f);
  }
  while (!alive.empty()) {
    std::shuffle(alive.begin(), alive.end(), m.random);
    // Some warps sleep, so that others get ahead of them as far as they may.
    for (Warp& warp : m.warps) warp.asleep = m.random() % 2 == 0;
    bool ran = false;
    for (Fiber* f : alive) {
      if (!Ready(m, *f)) continue;
      ran = true;
      if (f->warp->asleep) continue;
      m.current = f;
      Switch(m.scheduler, f->context);
    }
    if (!ran) Fail("threads wait for others that ended", "deadlock");
    alive.erase(std::remove_if(alive.begin(), alive.end(),
                               [](const Fiber* f) { return f->done; }),
                alive.end());
  }
  if (!m.bulk_copies.empty()) Fail("bulk copies", "outlive their block");
}

Barrier& BarrierAt(uint32_t at) {
  const Machine& m = TheMachine();
  if (at % 8 != 0 || at + 8 > m.shared_bytes) Fail("barrier", "bad address");
  return *reinterpret_cast<Barrier*>(SharedMemory() + at);
}

Barrier& LiveBarrierAt(uint32_t at) {
  Barrier& barrier = BarrierAt(at);
  if (barrier.magic != kBarrierMagic) Fail("barrier", "not initialised");
  return barrier;
}

void EndPhaseIfDone(Barrier& barrier) {
  if (barrier.missing > 0 || barrier.bytes > 0) return;
  barrier.parity ^= 1;
  barrier.missing = barrier.expected;
}

void Perform(const BulkCopy& copy) {
  std::memcpy(SharedMemory() + copy.to, copy.from, copy.bytes);
  Barrier& barrier = LiveBarrierAt(copy.barrier);
  barrier.bytes -= copy.bytes;
  EndPhaseIfDone(barrier);
}

void Perform(const Copy& copy) {
  char* to = SharedMemory() + copy.to;
  if (copy.zero) {
    std::memset(to, 0, 16);
  } else {
    std::memcpy(to, copy.from, 16);
  }
}

}  // namespace

const Index& ThreadIndex() { return TheMachine().current->index; }
const Index& BlockIndex() { return TheMachine().block; }
const Index& GridSize() { return TheMachine().grid; }
int Lane() { return TheMachine().current->lane; }

const WarpPayloads& MeetWarp(const char* what, const void* payload,
                             size_t bytes) {
  Fiber& f = *TheMachine().current;
  Warp& warp = *f.warp;
  const int side = f.warp_meetings++ % 2;
  if (bytes > kMaxPayload) Fail("payload too large", what);
  // The first of a meeting names it.
  if (warp.arrivals == (f.warp_meetings - 1) * 32) warp.what[side] = what;
  if (std::strcmp(warp.what[side], what) != 0) {
    Fail(what, "the warp's lanes are not at the same operation");
  }
  if (bytes > 0)
    std::memcpy(warp.payloads[side][f.lane].data(), payload, bytes);
  ++warp.arrivals;
  f.warp_target = f.warp_meetings * 32;
  Yield();
  return warp.payloads[side];
}

void MeetBlock() {
  Machine& m = TheMachine();
  Fiber& f = *m.current;
  ++m.block_arrivals;
  f.block_target = ++f.block_meetings * m.threads;
  Yield();
}

char* SharedMemory() {
  const auto at = reinterpret_cast<uintptr_t>(TheMachine().shared.data());
  return TheMachine().shared.data() + (128 - at % 128) % 128;
}

void AddCopy(uint32_t to, const void* from) {
  Machine& m = TheMachine();
  if (to % 16 != 0 || to + 16 > m.shared_bytes) Fail("copy", "bad target");
  if (from != nullptr && (reinterpret_cast<uintptr_t>(from) % 16 != 0 ||
                          !IsDeviceMemory(from, 16))) {
    Fail("copy", "bad source");
  }
  Copy copy;
  copy.to = to;
  copy.from = from;
  copy.zero = from == nullptr;
  if (m.random() % 2 == 0) {
    Perform(copy);
  } else {
    m.current->open.push_back(copy);
  }
}

void CommitCopyGroup() {
  Fiber& f = *TheMachine().current;
  f.groups.push_back(std::move(f.open));
  f.open.clear();
}

void WaitCopyGroups(int pending) {
  Fiber& f = *TheMachine().current;
  while (static_cast<int>(f.groups.size()) > pending) {
    for (const Copy& copy : f.groups.front()) Perform(copy);
    f.groups.erase(f.groups.begin());
  }
}

void AddProduct(std::function<void()> product) {
  TheMachine().current->open_products.push_back(std::move(product));
}

void CommitProductGroup() {
  Fiber& f = *TheMachine().current;
  f.products.push_back(std::move(f.open_products));
  f.open_products.clear();
}

void WaitProductGroups(int pending) {
  Fiber* const f = TheMachine().current;
  while (static_cast<int>(f->products.size()) > pending) {
    const auto group = std::move(f->products.front());
    f->products.erase(f->products.begin());
    for (const auto& product : group) product();
  }
}

void InitBarrier(uint32_t barrier, int arrivals) {
  const auto count = static_cast<uint8_t>(arrivals);
  BarrierAt(barrier) = {0, count, count, kBarrierMagic, 0};
}

void ArriveAtBarrier(uint32_t at, int expected_bytes) {
  Barrier& barrier = LiveBarrierAt(at);
  if (barrier.missing == 0) Fail("barrier", "more arrivals than its phase has");
  --barrier.missing;
  barrier.bytes += expected_bytes;
  EndPhaseIfDone(barrier);
}

void WaitAtBarrier(uint32_t at, uint32_t parity) {
  constexpr int kMostTurns = 1 << 20;
  Machine& m = TheMachine();
  for (int turn = 0; LiveBarrierAt(at).parity == parity; ++turn) {
    if (turn == kMostTurns) Fail("barrier", "its phase does not end");
    if (!m.bulk_copies.empty() && m.random() % 4 == 0) {
      std::swap(m.bulk_copies[m.random() % m.bulk_copies.size()],
                m.bulk_copies.back());
      Perform(m.bulk_copies.back());
      m.bulk_copies.pop_back();
    }
    Yield();
  }
}

void AddBulkCopy(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  Machine& m = TheMachine();
  if (to % 16 != 0 || bytes % 16 != 0 || to + bytes > m.shared_bytes) {
    Fail("bulk copy", "bad target");
  }
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0 ||
      !IsDeviceMemory(from, bytes)) {
    Fail("bulk copy", "bad source");
  }
  const BulkCopy copy = {to, barrier, from, bytes};
  if (m.random() % 2 == 0) {
    Perform(copy);
  } else {
    m.bulk_copies.push_back(copy);
  }
}

void RunGrid(const Index& grid, const Index& block, size_t shared_bytes,
             const std::function<void()>& thread) {
  Machine& m = TheMachine();
  if (shared_bytes > kMaxSharedBytes) Fail("launch", "too much shared memory");
  m.grid = grid;
  m.shared_bytes = shared_bytes;
  m.threads = static_cast<int>(block.x * block.y * block.z);
  if (m.threads < 1 || m.threads > 1024 || block.y != 1 || block.z != 1) {
    Fail("launch", "bad block");
  }
  while (static_cast<int>(m.fibers.size()) < m.threads) {
    auto fiber = std::make_unique<Fiber>();
    fiber->stack.reset(new char[kStackBytes]);
    fiber->index.x = static_cast<unsigned>(m.fibers.size());
    m.fibers.push_back(std::move(fiber));
  }
  m.thread = &thread;
  for (m.block.z = 0; m.block.z < grid.z; ++m.block.z) {
    for (m.block.y = 0; m.block.y < grid.y; ++m.block.y) {
      for (m.block.x = 0; m.block.x < grid.x; ++m.block.x) RunBlock(m);
    }
  }
}

void* AllocateDevice(size_t bytes) {
  Machine& m = TheMachine();
  if (m.allocations_left == 0) return nullptr;
  if (m.allocations_left > 0) --m.allocations_left;
  const size_t rounded = (bytes + 255) / 256 * 256;
  char* p = static_cast<char*>(std::aligned_alloc(256, rounded));
  if (p == nullptr) return nullptr;
  std::memset(p, 0xff, bytes);
  m.memory[p] = bytes;
  return p;
}

bool FreeDevice(void* p) {
  if (TheMachine().memory.erase(static_cast<char*>(p)) == 0) return false;
  std::free(p);
  return true;
}

bool IsDeviceMemory(const void* p, size_t bytes) {
  const auto& memory = TheMachine().memory;
  const char* at = static_cast<const char*>(p);
  auto after = memory.upper_bound(at);
  if (after == memory.begin()) return false;
  --after;
  return at + bytes <= after->first + after->second;
}

int DeviceAllocations() { return static_cast<int>(TheMachine().memory.size()); }

void FailAllocationAfter(int n) { TheMachine().allocations_left = n; }

}  // namespace foretoken::cuda_on_cpu
