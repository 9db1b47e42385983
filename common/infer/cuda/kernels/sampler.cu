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

struct Shared {
  unsigned long long bins[kSampleBins];
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
    own += shared.bins[threadIdx.x * kBinsOfThread + i];
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
    while (before + shared.bins[bin] < limit) before += shared.bins[bin++];
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

// The edge where the masses of the candidates, in order, reach a limit.
// mass(x, id): 0 where a candidate takes no part, else a function of x alone.
// limit(total): at least 1 and at most total, or 0 for the first candidate
// alone.
template <typename Mass, typename Limit>
__device__ SampleEdge FindCandidateEdge(const Row& row, uint64_t best_key,
                                        const Mass& mass, const Limit& limit_of,
                                        Shared& shared) {
  int edges[kSampleLevels];
  unsigned long long limit = 0;
  unsigned long long tie_mass = 1;
  SampleEdge edge;
  for (int level = 0; level < kSampleLevels; ++level) {
    __syncthreads();
    for (int i = threadIdx.x; i < kSampleBins; i += kThreads) {
      shared.bins[i] = 0;
    }
    __syncthreads();
    unsigned long long total = 0;
    ForEach(row.logits, row.vocab, [&](int id, float x) {
      const unsigned long long m = mass(x, id);
      if (m == 0) return;
      const float scaled = row.ScaledOf(x);
      const uint32_t ordered = OrderedBits(x);
      for (int i = 0; i < level; ++i) {
        if (SampleBin(i, scaled, ordered, id) != edges[i]) return;
      }
      total += m;
      // Ties are counted, the rest weighed.
      atomicAdd(&shared.bins[SampleBin(level, scaled, ordered, id)],
                level < kFirstIdLevel ? m : 1ull);
    });
    if (level == 0) {
      limit = limit_of(BlockReduce<false>(total, shared));
      if (limit == 0) {
        edge.ordered = static_cast<uint32_t>(best_key >> 32);
        edge.last_id = IdOfKey(best_key);
        return edge;
      }
    }
    __syncthreads();
    FindEdge(limit, shared);
    edges[level] = shared.edge;
    limit -= shared.before;
    if (level == kFirstIdLevel - 1) {
      edge.ordered = OrderedFromBins(edges);
      // All of that logit stay, or the lowest ids of them.
      const unsigned long long ties = shared.bins[edges[3]];
      tie_mass = mass.Of(FromOrderedBits(edge.ordered));
      limit = TiesNeeded(limit, tie_mass);
      if (limit * tie_mass >= ties) return edge;
    }
  }
  edge.last_id = edges[kFirstIdLevel] << 11 | edges[kFirstIdLevel + 1];
  return edge;
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

// Log-softmax of the raw logits: of the token, and the best of all.
__device__ void ReportLogprobs(const float* row, int vocab, int32_t token,
                               Shared& shared, DeviceToken* out) {
  uint64_t keys[kDeviceTopTokens];
  uint64_t below = ~uint64_t{0};
  for (int i = 0; i < kDeviceTopTokens; ++i) {
    keys[i] = below = FirstBelow(row, vocab, below, shared);
  }
  const float largest = ValueOfKey(keys[0]);
  unsigned long long weights = 0;
  ForEach(row, vocab, [&](int, float x) {
    weights += FixedWeight(Scaled(x, largest, 1.0f));
  });
  const uint64_t total = BlockReduce<false>(weights, shared);
  if (threadIdx.x != 0) return;
  const float log_total =
      FixedLog(internal::Div(static_cast<float>(total), kWeightOne));
  const auto logprob = [&](float x) {
    return x == MinusInfinity()
               ? x
               : internal::Add(Scaled(x, largest, 1.0f), -log_total);
  };
  out->logprob = logprob(CleanLogit(row[token]));
  for (int i = 0; i < kDeviceTopTokens && i < vocab; ++i) {
    out->top_tokens[i] = IdOfKey(keys[i]);
    out->top_logprobs[i] = logprob(ValueOfKey(keys[i]));
  }
}

__global__ void __launch_bounds__(kThreads) SampleKernel(SamplerParams p) {
  __shared__ Shared shared;
  AllowNextKernel();
  WaitForPreviousKernels();
  if (static_cast<int>(blockIdx.x) >= p.pass->outputs) return;
  const DeviceOutput output = p.pass->output()[blockIdx.x];
  const int32_t session = p.pass->row()[output.row].session;
  const int32_t index = p.pass->session()[session].sampling;
  const DeviceSampling* sampling =
      index < 0 ? nullptr : p.pass->sampling() + index;
  float* row = p.logits + blockIdx.x * p.stride;
  float* saved = p.saved + p.pass->saved()[blockIdx.x];
  const Changes changes(p.pass, output, sampling);

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
  if (p.pass->logprobs != 0) {
    ReportLogprobs(row, p.vocab, token, shared, out);
  }
}

}  // namespace

cudaError_t PrepareSampler() { return PrepareKernel(SampleKernel); }

cudaError_t LaunchSampler(const SamplerParams& params, int outputs,
                          Launcher& launcher) {
  return launcher.Run(SampleKernel, dim3(outputs), dim3(kThreads), 0, params);
}

}  // namespace foretoken::device
