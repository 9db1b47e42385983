#include "common/drafting/recycled_candidates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "common/drafting/verified_tree.h"

namespace foretoken {
namespace {

// exp(-cost) by cost.
// A table: drafting looks up thousands of these in a round.
const std::array<float, 256>& Weights() {
  static const std::array<float, 256> weights = [] {
    std::array<float, 256> made;
    for (int cost = 0; cost < 256; ++cost) {
      made[cost] =
          std::exp(static_cast<float>(-cost) / CandidateRows::kCostsPerNat);
    }
    return made;
  }();
  return weights;
}

}  // namespace

float RecycledCandidates::Sight::ShareOf(TokenId token) const {
  for (int i = 0; i < size; ++i) {
    if (tokens[i] == token) return share(i);
  }
  return 0.0f;
}

RecycledCandidates::RecycledCandidates(size_t max_sights)
    : max_sets_(std::max(kMinSets, std::bit_ceil(max_sights) / kWays)) {}

void RecycledCandidates::Resize(size_t sets) {
  const std::vector<uint64_t> keys = std::exchange(keys_, {});
  const std::vector<Sight> sights = std::exchange(sights_, {});
  keys_.assign(sets * kWays, kNoKey);
  sights_.resize(sets * kWays);
  // The top bits of the hash choose the set, so a doubled table splits each set
  // in two.
  shift_ = 64 - std::countr_zero(sets);
  for (size_t way = 0; way < keys.size(); ++way) {
    if (keys[way] == kNoKey) continue;
    // A set splits in two, so that there is room.
    const size_t to = RoomFor(keys[way]);
    keys_[to] = keys[way];
    sights_[to] = sights[way];
  }
}

size_t RecycledCandidates::RoomFor(uint64_t key) const {
  const size_t set = SetOf(key);
  size_t oldest = set;
  for (size_t way = set; way < set + kWays; ++way) {
    if (keys_[way] == kNoKey) return way;
    // Distances in time outlive a wrap-around of the order.
    if (order_ - sights_[way].order > order_ - sights_[oldest].order) {
      oldest = way;
    }
  }
  return oldest;
}

RecycledCandidates::Sight& RecycledCandidates::Place(uint64_t key) {
  if (keys_.empty()) Resize(kMinSets);
  size_t way = SetOf(key);
  const size_t end = way + kWays;
  while (way < end && keys_[way] != key) ++way;
  if (way == end) {
    way = RoomFor(key);
    // Grows only when it is well filled: an overflow of one set alone is bad
    // luck.
    if (keys_[way] != kNoKey && size_ > keys_.size() / 4 &&
        keys_.size() < max_sets_ * kWays) {
      Resize(keys_.size() / kWays * 2);
      way = RoomFor(key);
    }
    size_ += keys_[way] == kNoKey;
    keys_[way] = key;
    sights_[way].own = false;
  }
  sights_[way].order = ++order_;
  return sights_[way];
}

void RecycledCandidates::Add(TokenId previous, TokenId last,
                             absl::Span<const TokenId> tokens,
                             absl::Span<const uint8_t> costs, bool own) {
  std::array<float, kWidth> weights;
  std::array<TokenId, kWidth> kept;
  size_t size = 0;
  float total = 0.0f;
  for (size_t i = 0; i < tokens.size() && size < kWidth; ++i) {
    // Negative ids mark places without a candidate.
    if (tokens[i] < 0) continue;
    kept[size] = tokens[i];
    weights[size] = Weights()[costs[i]];
    total += weights[size++];
  }
  if (size == 0) return;
  Sight& sight = Place(KeyOf(previous, last));
  sight.tokens = kept;
  sight.size = static_cast<uint16_t>(size);
  // The context may occur in drafts and in the output: its own sight stays own.
  sight.own |= own;
  // Shares add up to one in 16 bits.
  const float scale = 65535.0f / total;
  for (size_t i = 0; i < size; ++i) {
    sight.shares[i] = static_cast<uint16_t>(std::lround(weights[i] * scale));
  }
}

void RecycledCandidates::AddOwn(const RecycledCandidates& other) {
  std::vector<size_t> own;
  for (size_t i = 0; i < other.sights_.size(); ++i) {
    if (other.keys_[i] != kNoKey && other.sights_[i].own) own.push_back(i);
  }
  // Oldest first, so that the newest sights are the last to be evicted.
  std::sort(own.begin(), own.end(), [&](size_t a, size_t b) {
    return other.order_ - other.sights_[a].order >
           other.order_ - other.sights_[b].order;
  });
  for (const size_t i : own) {
    Sight& sight = Place(other.keys_[i]);
    // The order is that of this memory, not of the request.
    const uint32_t order = sight.order;
    sight = other.sights_[i];
    sight.order = order;
  }
}

void RecycledCandidates::Clear() {
  // Fresh vectors release the memory.
  keys_ = std::vector<uint64_t>();
  sights_ = std::vector<Sight>();
  order_ = 0;
  size_ = 0;
}

}  // namespace foretoken
