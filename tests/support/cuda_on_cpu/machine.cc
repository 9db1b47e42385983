#include "tests/support/cuda_on_cpu/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/cuda_on_cpu/fiber.h"

namespace foretoken::cuda_on_cpu {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr size_t kMaxSharedBytes = 227 << 10;
constexpr size_t kMaxStaticSharedBytes = 48 << 10;
// Blocks of a grid that begin early, at most.
constexpr int kEarlyBlocks = 2;

[[noreturn]] void Fail(const char* what, const char* detail) {
  std::fprintf(stderr, "cuda_on_cpu: %s (%s)\n", what, detail);
  std::abort();
}

struct Copy {
  uint32_t to = 0;
  bool zero = false;
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

struct Block;

struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack;
  Index index;
  int lane = 0;
  Block* block = nullptr;
  Warp* warp = nullptr;
  bool done = false;
  bool waits_for_grids = false;
  int64_t warp_meetings = 0, block_meetings = 0;
  // What it waits for: arrivals of its warp, or of the block.
  int64_t warp_target = 0, block_target = 0;
  std::vector<std::vector<Copy>> groups;  // committed
  std::vector<Copy> open;
  std::vector<std::vector<std::function<void()>>> products;
  std::vector<std::function<void()>> open_products;
};

struct LaunchedGrid : Grid {
  // Whether a thread of it has waited for the grids ahead.
  bool waited = false;
  int64_t blocks() const { return int64_t{size.x} * size.y * size.z; }
  int threads() const { return static_cast<int>(block.x); }
};

// A thread block that runs, or that waits for the grids ahead.
struct Block {
  LaunchedGrid* grid = nullptr;
  Index index;
  bool early = false;  // the grids ahead are not done
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> alive;
  std::vector<Warp> warps;
  std::vector<char> shared;
  std::vector<char> static_shared;
  int64_t arrivals = 0;
  std::vector<BulkCopy> bulk_copies;  // under way

  char* shared_memory() {
    const auto at = reinterpret_cast<uintptr_t>(shared.data());
    return shared.data() + (128 - at % 128) % 128;
  }
};

struct Machine {
  std::vector<std::unique_ptr<Fiber>> idle;  // kept for their stacks
  std::vector<LaunchedGrid> launched;
  Fiber* current = nullptr;
  Context scheduler;
  Index block, grid;  // of the fiber that runs
  std::mt19937 random{12345};
};

Machine& TheMachine() {
  static auto* machine = new Machine;
  return *machine;
}

void FiberMain() {
  Machine& m = TheMachine();
  m.current->block->grid->thread();
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

bool Ready(const Fiber& f) {
  return f.warp->arrivals >= f.warp_target &&
         f.block->arrivals >= f.block_target &&
         !(f.waits_for_grids && f.block->early);
}

std::unique_ptr<Fiber> TakeFiber(Machine& m) {
  if (m.idle.empty()) {
    auto fiber = std::make_unique<Fiber>();
    fiber->stack.reset(new char[kStackBytes]);
    return fiber;
  }
  auto fiber = std::move(m.idle.back());
  m.idle.pop_back();
  auto stack = std::move(fiber->stack);
  *fiber = Fiber();
  fiber->stack = std::move(stack);
  return fiber;
}

std::unique_ptr<Block> MakeBlock(Machine& m, LaunchedGrid& grid,
                                 int64_t number) {
  auto block = std::make_unique<Block>();
  block->grid = &grid;
  block->index.x = static_cast<unsigned>(number % grid.size.x);
  block->index.y = static_cast<unsigned>(number / grid.size.x % grid.size.y);
  block->index.z = static_cast<unsigned>(number / grid.size.x / grid.size.y);
  block->shared.assign(grid.shared_bytes + 128, '\xff');
  block->warps.resize((grid.threads() + 31) / 32);
  for (int i = 0; i < grid.threads(); ++i) {
    auto fiber = TakeFiber(m);
    fiber->index.x = static_cast<unsigned>(i);
    fiber->lane = i % 32;
    fiber->block = block.get();
    fiber->warp = &block->warps[i / 32];
    Prepare(fiber->context, fiber->stack.get(), kStackBytes, FiberMain);
    block->alive.push_back(fiber.get());
    block->fibers.push_back(std::move(fiber));
  }
  return block;
}

// To its end; where the block is early, at most to its threads' waits.
void RunBlock(Machine& m, Block& block) {
  m.block = block.index;
  m.grid = block.grid->size;
  std::vector<Fiber*>& alive = block.alive;
  while (!alive.empty()) {
    std::shuffle(alive.begin(), alive.end(), m.random);
    // Some warps sleep, so that others get ahead of them as far as they may.
    for (Warp& warp : block.warps) warp.asleep = m.random() % 2 == 0;
    bool ran = false, waits = false;
    for (Fiber* f : alive) {
      waits = waits || f->waits_for_grids;
      if (!Ready(*f)) continue;
      ran = true;
      if (f->warp->asleep) continue;
      m.current = f;
      Switch(m.scheduler, f->context);
    }
    if (!ran && block.early && waits) return;
    if (!ran) Fail("threads wait for others that ended", "deadlock");
    alive.erase(std::remove_if(alive.begin(), alive.end(),
                               [](const Fiber* f) { return f->done; }),
                alive.end());
  }
  if (!block.bulk_copies.empty()) Fail("bulk copies", "outlive their block");
  for (auto& fiber : block.fibers) m.idle.push_back(std::move(fiber));
  block.fibers.clear();
}

// A block that began early: its number in its grid, and the grid before which
// it begins.
struct EarlyBlock {
  int64_t number = 0;
  size_t begins = 0;
  std::unique_ptr<Block> block;
};

// A grid may begin early where the ones from there on to it may, too: each of
// them has begun before the next one does.
std::vector<EarlyBlock> DrawEarlyBlocks(Machine& m,
                                        const std::vector<LaunchedGrid>& grids,
                                        size_t index) {
  std::vector<EarlyBlock> early;
  size_t first = index;
  while (first > 0 && grids[first].early) --first;
  for (int i = 0; i < kEarlyBlocks && first < index; ++i) {
    EarlyBlock block;
    block.number = static_cast<int64_t>(m.random() % grids[index].blocks());
    block.begins = first + m.random() % (index - first);
    if (i > 0 && block.number == early[0].number) break;
    early.push_back(std::move(block));
  }
  return early;
}

void RunGrid(Machine& m, LaunchedGrid& grid, std::vector<EarlyBlock>& early) {
  std::vector<int64_t> numbers(grid.blocks());
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  std::shuffle(numbers.begin(), numbers.end(), m.random);
  for (const int64_t number : numbers) {
    const auto begun =
        std::find_if(early.begin(), early.end(),
                     [&](const EarlyBlock& e) { return e.number == number; });
    std::unique_ptr<Block> block = begun != early.end()
                                       ? std::move(begun->block)
                                       : MakeBlock(m, grid, number);
    block->early = false;
    RunBlock(m, *block);
  }
  // A grid that is done says that those ahead of it are: one of its blocks has
  // to have seen it.
  if (grid.early && !grid.waited) Fail("launch", "no block waits");
}

Block& PresentBlock() { return *TheMachine().current->block; }
size_t SharedBytes() { return PresentBlock().grid->shared_bytes; }

Barrier& BarrierAt(uint32_t at) {
  if (at % 8 != 0 || at + 8 > SharedBytes()) Fail("barrier", "bad address");
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
  Fiber& f = *TheMachine().current;
  Block& block = *f.block;
  ++block.arrivals;
  f.block_target = ++f.block_meetings * block.grid->threads();
  Yield();
}

void WaitForGridsAhead() {
  Fiber& f = *TheMachine().current;
  f.block->grid->waited = true;
  if (!f.block->early) return;
  f.waits_for_grids = true;
  Yield();
}

char* SharedMemory() { return PresentBlock().shared_memory(); }

void* StaticShared(size_t bytes) {
  std::vector<char>& memory = PresentBlock().static_shared;
  if (memory.empty()) memory.assign(bytes, '\xff');
  if (bytes != memory.size() || bytes > kMaxStaticSharedBytes) {
    Fail("static shared memory", "one piece of a kernel, 48 KiB at most");
  }
  return memory.data();
}

void AddCopy(uint32_t to, const void* from) {
  Machine& m = TheMachine();
  if (to % 16 != 0 || to + 16 > SharedBytes()) Fail("copy", "bad target");
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
    std::vector<BulkCopy>& copies = PresentBlock().bulk_copies;
    if (!copies.empty() && m.random() % 4 == 0) {
      std::swap(copies[m.random() % copies.size()], copies.back());
      Perform(copies.back());
      copies.pop_back();
    }
    Yield();
  }
}

void AddBulkCopy(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  Machine& m = TheMachine();
  if (to % 16 != 0 || bytes % 16 != 0 || to + bytes > SharedBytes()) {
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
    PresentBlock().bulk_copies.push_back(copy);
  }
}

void Launch(Grid grid) {
  if (grid.shared_bytes > kMaxSharedBytes) {
    Fail("launch", "too much shared memory");
  }
  if (grid.block.x < 1 || grid.block.x > 1024 || grid.block.y != 1 ||
      grid.block.z != 1) {
    Fail("launch", "bad block");
  }
  TheMachine().launched.push_back({std::move(grid)});
}

void RunLaunched() {
  Machine& m = TheMachine();
  std::vector<LaunchedGrid> grids = std::move(m.launched);
  m.launched.clear();
  std::vector<std::vector<EarlyBlock>> early(grids.size());
  for (size_t i = 0; i < grids.size(); ++i) {
    early[i] = DrawEarlyBlocks(m, grids, i);
  }
  for (size_t i = 0; i < grids.size(); ++i) {
    for (size_t later = i + 1; later < grids.size(); ++later) {
      for (EarlyBlock& begun : early[later]) {
        if (begun.begins != i) continue;
        begun.block = MakeBlock(m, grids[later], begun.number);
        begun.block->early = true;
        RunBlock(m, *begun.block);
      }
    }
    RunGrid(m, grids[i], early[i]);
  }
}

void DropLaunched() { TheMachine().launched.clear(); }

}  // namespace foretoken::cuda_on_cpu
