#include "common/infer/cuda/kernels/device_math.cuh"
#include "common/infer/cuda/kernels/sample_order.h"
#include "common/infer/cuda/kernels/sampler.h"
#include "common/sampling/position_noise.h"

namespace foretoken::device {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kBinsOfThread = kSampleBins / kThreads;
static_assert(kSampleBins % kThreads == 0 && kWarps == 32);
// Candidates that are sorted at once; more of one bin are told apart by their
// digits, a pass over the logits for each.
constexpr int kListed = 2048;
static_assert(kListed <= kSampleBins);

// A sum of 64 bits. Shared memory adds 32 bits at once, 64 only in a loop of
// compare and swap: two words and a carry, which the old low word tells.
struct Bin {
  unsigned low, high;

  __device__ __forceinline__ void Set(unsigned long long mass) {
    low = static_cast<unsigned>(mass);
    high = static_cast<unsigned>(mass >> 32);
  }
  __device__ __forceinline__ unsigned long long Mass() const {
    return static_cast<unsigned long long>(high) << 32 | low;
  }
  __device__ __forceinline__ void Add(unsigned long long mass) {
    const unsigned added = static_cast<unsigned>(mass);
    const unsigned old = added == 0 ? 0u : atomicAdd(&low, added);
    const unsigned carry = old + added < old ? 1u : 0u;
    const unsigned upper = static_cast<unsigned>(mass >> 32) + carry;
    if (upper != 0) atomicAdd(&high, upper);
  }
};

struct Shared {
  Bin bins[kSampleBins];
  unsigned long long list[kListed];  // sort keys
  unsigned listed;                   // more than kListed: the rest is left out
  unsigned long long partial[kWarps];
  unsigned long long before;  // mass ahead of the edge bin
  int edge;
};

// The largest or the sum over the thread block, in all threads. A barrier goes
// first, so `shared` may have been in use.
template <bool kMax>
__device__ uint64_t BlockReduce(unsigned long long x, Shared& shared) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned long long other = __shfl_xor_sync(kAllLanes, x, offset);
    x = kMax ? max(x, other) : x + other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared.partial[threadIdx.x / 32] = x;
  __syncthreads();
  unsigned long long all = shared.partial[0];
  for (int i = 1; i < kWarps; ++i) {
    const unsigned long long other = shared.partial[i];
    all = kMax ? max(all, other) : all + other;
  }
  return all;
}

// Calls use(id, clean logit) for every id of the thread, four neighbours at a
// time after a call of block(first id, their largest), which may skip them.
template <typename Block, typename Use>
__device__ __forceinline__ void ForEach(const float* row, int vocab,
                                        const Block& block, const Use& use) {
  for (int first = threadIdx.x * 4; first < vocab; first += kThreads * 4) {
    const float4 v = *reinterpret_cast<const float4*>(row + first);
    float x[4] = {v.x, v.y, v.z, v.w};
    float largest = MinusInfinity();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = first + i < vocab ? CleanLogit(x[i]) : MinusInfinity();
      largest = fmaxf(largest, x[i]);
    }
    if (!block(first, largest)) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i < vocab) use(first + i, x[i]);
    }
  }
}

template <typename Use>
__device__ __forceinline__ void ForEach(const float* row, int vocab,
                                        const Use& use) {
  ForEach(
      row, vocab, [](int, float) { return true; }, use);
}

// Key of the first candidate after (below) `below`; 0 if there is none.
__device__ uint64_t FirstBelow(const float* row, int vocab, uint64_t below,
                               Shared& shared) {
  uint64_t best = 0;
  ForEach(row, vocab, [&](int id, float x) {
    const uint64_t key = SortKey(x, id);
    if (key < below && key > best) best = key;
  });
  return BlockReduce<true>(best, shared);
}

// Sets shared.edge to the first bin at which the running sum of the bins
// reaches `limit`, shared.before to the sum ahead of it. Bins are ready; the
// caller puts a barrier before it changes them.
__device__ void FindEdge(uint64_t limit, Shared& shared) {
  const int lane = threadIdx.x % 32;
  unsigned long long own = 0;
#pragma unroll
  for (int i = 0; i < kBinsOfThread; ++i) {
    own += shared.bins[threadIdx.x * kBinsOfThread + i].Mass();
  }
  unsigned long long inclusive = own;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const unsigned long long other =
        __shfl_up_sync(kAllLanes, inclusive, offset);
    if (lane >= offset) inclusive += other;
  }
  __syncthreads();
  if (lane == 31) shared.partial[threadIdx.x / 32] = inclusive;
  __syncthreads();
  unsigned long long before = inclusive - own;
  for (int i = 0; i < static_cast<int>(threadIdx.x) / 32; ++i) {
    before += shared.partial[i];
  }
  if (before < limit && before + own >= limit) {  // one thread
    int bin = threadIdx.x * kBinsOfThread;
    while (before + shared.bins[bin].Mass() < limit) {
      before += shared.bins[bin++].Mass();
    }
    shared.edge = bin;
    shared.before = before;
  }
  __syncthreads();
}

struct Row {
  const float* logits;
  int vocab;
  float largest, temperature;

  __device__ float ScaledOf(float clean) const {
    return Scaled(clean, largest, temperature);
  }
};

__device__ __forceinline__ int DistanceBin(float scaled) {
  return SampleBin(0, scaled, 0, 0);
}

__device__ void ClearBins(Shared& shared) {
  __syncthreads();
  for (int i = threadIdx.x; i < kSampleBins; i += kThreads) {
    shared.bins[i].Set(0);
  }
  __syncthreads();
}

// Adds what the threads found of one bin, so that a row whose candidates are
// almost all in it (the last, at a low temperature) does not queue for it.
__device__ __forceinline__ void AddOfThreads(unsigned long long mass,
                                             Bin& bin) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    mass += __shfl_xor_sync(kAllLanes, mass, offset);
  }
  if (threadIdx.x % 32 == 0) bin.Add(mass);
}

// Fills the bins by distance from the largest with the candidates' masses and
// answers their sum. extra(x): called for every candidate.
template <typename Mass, typename Extra>
__device__ uint64_t FillBins(const Row& row, const Mass& mass,
                             const Extra& extra, Shared& shared) {
  ClearBins(shared);
  unsigned long long total = 0, far = 0;
  ForEach(row.logits, row.vocab, [&](int id, float x) {
    extra(x);
    const unsigned long long m = mass(x, id);
    if (m == 0) return;
    const int bin = DistanceBin(row.ScaledOf(x));
    total += m;
    if (bin == kSampleBins - 1) {
      far += m;
    } else {
      shared.bins[bin].Add(m);
    }
  });
  AddOfThreads(far, shared.bins[kSampleBins - 1]);
  total = BlockReduce<false>(total, shared);
  __syncthreads();
  return total;
}

// Lists the candidates of bins first..last by distance that have a mass, in
// order; false if they are too many.
template <typename Mass>
__device__ bool ListBins(const Row& row, int first, int last, const Mass& mass,
                         Shared& shared) {
  __syncthreads();
  if (threadIdx.x == 0) shared.listed = 0;
  __syncthreads();
  ForEach(row.logits, row.vocab, [&](int id, float x) {
    const int bin = DistanceBin(row.ScaledOf(x));
    if (bin < first || bin > last || mass(x, id) == 0) return;
    const unsigned at = atomicAdd(&shared.listed, 1u);
    if (at < kListed) shared.list[at] = SortKey(x, id);
  });
  __syncthreads();
  const int listed = static_cast<int>(shared.listed);
  if (listed > kListed) return false;
  // Bitonic: 0 is below every key.
  int size = 2;
  while (size < listed) size *= 2;
  for (int i = listed + threadIdx.x; i < size; i += kThreads) {
    shared.list[i] = 0;
  }
  for (int run = 2; run <= size; run *= 2) {
    for (int apart = run / 2; apart > 0; apart /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < size; i += kThreads) {
        const int other = i ^ apart;
        if (other < i) continue;
        const unsigned long long a = shared.list[i], b = shared.list[other];
        const bool falling = (i & run) == 0;
        if (falling ? a < b : a > b) {
          shared.list[i] = b;
          shared.list[other] = a;
        }
      }
    }
  }
  __syncthreads();
  return true;
}

// The edge among the candidates listed, of which the last kept is the first at
// which the running sum reaches `limit`.
template <typename Mass>
__device__ SampleEdge EdgeOfList(uint64_t limit, const Mass& mass,
                                 Shared& shared) {
  const int listed = static_cast<int>(shared.listed);
  for (int i = threadIdx.x; i < kSampleBins; i += kThreads) {
    shared.bins[i].Set(i < listed ? mass.Of(ValueOfKey(shared.list[i])) : 0);
  }
  __syncthreads();
  FindEdge(limit, shared);
  const uint64_t key = shared.list[shared.edge];
  SampleEdge edge;
  edge.ordered = static_cast<uint32_t>(key >> 32);
  edge.last_id = IdOfKey(key);
  return edge;
}

// The same by histograms of digits, from the edge bin by distance on.
template <typename Mass>
__attribute__((noinline)) __device__ SampleEdge EdgeByLevels(const Row& row,
                                                             int distance_bin,
                                                             uint64_t limit,
                                                             const Mass& mass,
                                                             Shared& shared) {
  int edges[kSampleLevels];
  edges[0] = distance_bin;
  SampleEdge edge;
  for (int level = 1; level < kSampleLevels; ++level) {
    ClearBins(shared);
    ForEach(row.logits, row.vocab, [&](int id, float x) {
      const unsigned long long m = mass(x, id);
      if (m == 0) return;
      const float scaled = row.ScaledOf(x);
      const uint32_t ordered = OrderedBits(x);
      for (int i = 0; i < level; ++i) {
        if (SampleBin(i, scaled, ordered, id) != edges[i]) return;
      }
      // Ties are counted, the rest weighed.
      shared.bins[SampleBin(level, scaled, ordered, id)].Add(
          level < kFirstIdLevel ? m : 1ull);
    });
    __syncthreads();
    FindEdge(limit, shared);
    edges[level] = shared.edge;
    limit -= shared.before;
    if (level == kFirstIdLevel - 1) {
      edge.ordered = OrderedFromBins(edges);
      // All of that logit stay, or the lowest ids of them.
      const uint64_t ties = shared.bins[edges[3]].Mass();
      const uint64_t tie_mass = mass.Of(FromOrderedBits(edge.ordered));
      limit = TiesNeeded(limit, tie_mass);
      if (limit * tie_mass >= ties) return edge;
    }
  }
  edge.last_id = edges[kFirstIdLevel] << 11 | edges[kFirstIdLevel + 1];
  return edge;
}

// The edge where the masses of the candidates, in order, reach a limit: two
// passes over the logits, unless thousands are at the same distance.
// mass(x, id): 0 where a candidate takes no part, else a function of x alone.
// limit(total): at least 1 and at most total, or 0 for the first candidate
// alone.
template <typename Mass, typename Limit>
__device__ SampleEdge FindCandidateEdge(const Row& row, uint64_t best_key,
                                        const Mass& mass, const Limit& limit_of,
                                        Shared& shared) {
  uint64_t limit = limit_of(FillBins(
      row, mass, [](float) {}, shared));
  if (limit == 0) {
    SampleEdge edge;
    edge.ordered = static_cast<uint32_t>(best_key >> 32);
    edge.last_id = IdOfKey(best_key);
    return edge;
  }
  FindEdge(limit, shared);
  const int bin = shared.edge;
  limit -= shared.before;
  return ListBins(row, bin, bin, mass, shared)
             ? EdgeOfList(limit, mass, shared)
             : EdgeByLevels(row, bin, limit, mass, shared);
}

struct CountMass {
  __device__ uint64_t Of(float) const { return 1; }
  __device__ uint64_t operator()(float, int) const { return 1; }
};

struct WeightMass {
  Row row;
  SampleEdge top_k;
  __device__ uint64_t Of(float x) const { return FixedWeight(row.ScaledOf(x)); }
  __device__ uint64_t operator()(float x, int id) const {
    return top_k.Keeps(x, id) ? Of(x) : 0;
  }
};

// Arg max of scaled logit + noise among what the filters keep.
__device__ int32_t Draw(const Row& row, const DeviceSampling& sampling,
                        int64_t position, uint64_t best_key, Shared& shared) {
  SampleEdge top_k, top_p;
  if (sampling.top_k > 0 && sampling.top_k < row.vocab) {
    const uint64_t k = static_cast<uint64_t>(sampling.top_k);
    top_k = FindCandidateEdge(
        row, best_key, CountMass{}, [k](uint64_t) { return k; }, shared);
  }
  if (sampling.top_p < 1.0f) {
    const double p = static_cast<double>(sampling.top_p);
    top_p = FindCandidateEdge(
        row, best_key, WeightMass{row, top_k},
        [p](uint64_t total) {
          return static_cast<uint64_t>(p * static_cast<double>(total));
        },
        shared);
  }
  const float min_p = sampling.min_p;
  // The best candidate always stays, so all may start from its score.
  const int32_t best = IdOfKey(best_key);
  float winner =
      internal::Add(0.0f, GumbelNoise(sampling.seed, position, best));
  int32_t winner_id = best;
  PhiloxWords noise = {};
  ForEach(
      row.logits, row.vocab,
      [&](int first, float largest) {
        if (internal::Add(row.ScaledOf(largest), kMaxGumbel) < winner) {
          return false;
        }
        noise = NoiseBlock(sampling.seed, position,
                           static_cast<uint32_t>(first) / 4);
        return true;
      },
      [&](int id, float clean) {
        const float x = row.ScaledOf(clean);
        const uint32_t word = id % 4 == 0   ? noise.word[0]
                              : id % 4 == 1 ? noise.word[1]
                              : id % 4 == 2 ? noise.word[2]
                                            : noise.word[3];
        if (internal::Add(x, GumbelUpperBound(word)) < winner) return;
        if (!top_k.Keeps(clean, id) || !top_p.Keeps(clean, id)) return;
        if (min_p > 0.0f && FixedExp(x) < min_p) return;
        const float score = internal::Add(x, GumbelFromWord(word));
        if (score > winner || (score == winner && id < winner_id)) {
          winner = score;
          winner_id = id;
        }
      });
  return IdOfKey(BlockReduce<true>(
      SortKey(internal::Add(winner, 0.0f), winner_id), shared));
}

// Penalties, bias and bans of one output.
struct Changes {
  const DeviceSampling* sampling;  // nullptr: arg max
  const DeviceCount *session_counts, *row_counts;
  const DeviceBias *biases, *bans;
  int session_count = 0, row_count = 0, bias_count = 0, ban_count = 0;

  __device__ Changes(const PassHeader* pass, const DeviceOutput& output,
                     const DeviceSampling* s)
      : sampling(s),
        session_counts(pass->count() + (s == nullptr ? 0 : s->count_begin)),
        row_counts(pass->count() + output.count_begin),
        biases(pass->bias() + (s == nullptr ? 0 : s->bias_begin)),
        bans(pass->bias() + output.ban_begin),
        session_count(s == nullptr ? 0 : s->counts),
        row_count(s == nullptr ? 0 : output.counts),
        bias_count(s == nullptr ? 0 : s->biases),
        ban_count(output.bans) {}

  __device__ bool any() const {
    return session_count + row_count + bias_count + ban_count > 0;
  }

  __device__ bool OnPath(int32_t token) const {
    for (int i = 0; i < row_count; ++i) {
      if (row_counts[i].token == token) return true;
    }
    return false;
  }

  // A token is in a list once, and in one list of counts that applies.
  __device__ void Apply(float* row, float* saved) const {
    for (int i = threadIdx.x; i < session_count + row_count; i += kThreads) {
      const bool mine = i >= session_count;
      const DeviceCount c =
          mine ? row_counts[i - session_count] : session_counts[i];
      if (!mine && OnPath(c.token)) continue;
      saved[i] = row[c.token];
      row[c.token] = Penalised(CleanLogit(saved[i]), c.count, *sampling);
    }
    __syncthreads();
    saved += session_count + row_count;
    for (int i = threadIdx.x; i < bias_count; i += kThreads) {
      saved[i] = row[biases[i].token];
      row[biases[i].token] =
          internal::Add(CleanLogit(saved[i]), biases[i].bias);
    }
    __syncthreads();
    saved += bias_count;
    for (int i = threadIdx.x; i < ban_count; i += kThreads) {
      saved[i] = row[bans[i].token];
      row[bans[i].token] = MinusInfinity();
    }
    __syncthreads();
  }

  __device__ void Undo(float* row, const float* saved) const {
    __syncthreads();
    const float* later = saved + session_count + row_count + bias_count;
    for (int i = threadIdx.x; i < ban_count; i += kThreads) {
      row[bans[i].token] = later[i];
    }
    __syncthreads();
    later -= bias_count;
    for (int i = threadIdx.x; i < bias_count; i += kThreads) {
      row[biases[i].token] = later[i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < session_count + row_count; i += kThreads) {
      const bool mine = i >= session_count;
      const int32_t token =
          mine ? row_counts[i - session_count].token : session_counts[i].token;
      if (mine || !OnPath(token)) row[token] = saved[i];
    }
    __syncthreads();
  }
};

// Log-softmax of the raw logits: of the token, and the best of all, whose key
// is `best_key`.
__attribute__((noinline)) __device__ void ReportLogprobs(
    const float* logits, int vocab, int32_t token, uint64_t best_key,
    Shared& shared, DeviceToken* out) {
  const Row row = {logits, vocab, ValueOfKey(best_key), 1.0f};
  unsigned long long weights = 0;
  FillBins(
      row, CountMass(),
      [&](float x) { weights += FixedWeight(row.ScaledOf(x)); }, shared);
  const uint64_t total = BlockReduce<false>(weights, shared);
  const int best = min(kDeviceTopTokens, vocab);
  __syncthreads();
  FindEdge(static_cast<uint64_t>(best), shared);
  const bool listed = ListBins(row, 0, shared.edge, CountMass(), shared);
  uint64_t below = ~uint64_t{0};
  const float log_total =
      FixedLog(internal::Div(static_cast<float>(total), kWeightOne));
  const auto logprob = [&](float x) {
    return x == MinusInfinity() ? x
                                : internal::Add(row.ScaledOf(x), -log_total);
  };
  for (int i = 0; i < best; ++i) {
    below = listed ? shared.list[i] : FirstBelow(logits, vocab, below, shared);
    if (threadIdx.x == 0) {
      out->top_tokens[i] = IdOfKey(below);
      out->top_logprobs[i] = logprob(ValueOfKey(below));
    }
  }
  if (threadIdx.x == 0) out->logprob = logprob(CleanLogit(logits[token]));
}

__global__ void __launch_bounds__(kThreads) SampleKernel(SamplerParams p) {
  Shared& shared = StaticShared<Shared>();
  AllowNextKernel();
  if (static_cast<int>(blockIdx.x) >= p.pass->outputs) {
    WaitForPreviousKernels();
    return;
  }
  const DeviceOutput output = p.pass->output()[blockIdx.x];
  const int32_t session = p.pass->row()[output.row].session;
  const int32_t index = p.pass->session()[session].sampling;
  const DeviceSampling* sampling =
      index < 0 ? nullptr : p.pass->sampling() + index;
  float* row = p.logits + blockIdx.x * p.stride;
  float* saved = p.saved + p.pass->saved()[blockIdx.x];
  const Changes changes(p.pass, output, sampling);
  WaitForPreviousKernels();

  if (changes.any()) changes.Apply(row, saved);
  const uint64_t best_key = FirstBelow(row, p.vocab, ~uint64_t{0}, shared);
  int32_t token = IdOfKey(best_key);
  if (sampling != nullptr && sampling->temperature > 0.0f &&
      ValueOfKey(best_key) > MinusInfinity()) {
    const Row of = {row, p.vocab, ValueOfKey(best_key), sampling->temperature};
    token = Draw(of, *sampling, output.position, best_key, shared);
  }
  if (changes.any()) changes.Undo(row, saved);
  bool bad = false;
  if (ValueOfKey(best_key) == MinusInfinity()) {
    unsigned long long numbers = 0;
    for (int id = threadIdx.x; id < p.vocab; id += kThreads) {
      numbers += row[id] == row[id];
    }
    bad = BlockReduce<false>(numbers, shared) == 0;
  }
  DeviceToken* out = p.tokens + blockIdx.x;
  if (threadIdx.x == 0) {
    *out = DeviceToken();
    out->token = token;
    out->bad = bad ? 1 : 0;
  }
  if (output.logprobs != 0) {
    // (The row is as the model left it again.)
    const uint64_t raw_key =
        changes.any() ? FirstBelow(row, p.vocab, ~uint64_t{0}, shared)
                      : best_key;
    ReportLogprobs(row, p.vocab, token, raw_key, shared, out);
  }
}

}  // namespace

cudaError_t PrepareSampler() { return PrepareKernel(SampleKernel); }

cudaError_t LaunchSampler(const SamplerParams& params, int outputs,
                          Launcher& launcher) {
  return launcher.Run(SampleKernel, dim3(outputs), dim3(kThreads), 0, params);
}

}  // namespace foretoken::device
