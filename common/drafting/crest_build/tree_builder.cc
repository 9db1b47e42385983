#include "common/drafting/crest_build/tree_builder.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/mix.h"
#include "common/base/progress_bar.h"
#include "common/base/status_macros.h"
#include "common/drafting/crest/tree_select.h"
#include "common/drafting/crest_build/match_store.h"
#include "common/drafting/crest_build/ngram_select.h"
#include "common/drafting/crest_build/parallel_status.h"

namespace foretoken {
namespace {

constexpr uint64_t kScanChunk = uint64_t{1} << 16;  // positions
constexpr size_t kBlockEntries = 64;
constexpr size_t kBlocksPerThread = 16;
constexpr uint64_t kPlanBlock = 4096;  // n-grams per read
// Slots of MatchStore have 32 bits for the entry.
constexpr uint64_t kMaxGroup = uint64_t{1} << 30;

// A bijection: distinct positions have distinct keys.
uint64_t MixPosition(uint64_t seed, uint64_t position) {
  return MixBits(position + (seed + 1) * kMixStep);
}

// The first 8 bytes in token order, as an integer.
uint64_t FirstBytes(const std::vector<uint8_t>& item) {
  uint8_t bytes[8] = {};
  std::memcpy(bytes, item.data(), std::min<size_t>(8, item.size()));
  return NgramKey<1>::Load(bytes).words[0];
}

struct Group {
  uint64_t first = 0;
  uint64_t count = 0;
};

template <int W>
class TreeBuilder {
 public:
  TreeBuilder(const TokenFile& tokens, const SpillFile& selected,
              const StageOptions& options, const TokenTable& table,
              int32_t vocab_size, ThreadPool& pool, SpillFile& trees)
      : tokens_(tokens),
        selected_(selected),
        options_(options),
        layout_(options.layout),
        min_n_(static_cast<int>(options.min_n)),
        table_(table),
        pool_(pool),
        trees_(trees),
        masks_(layout_.Masks<W>()),
        item_bytes_(static_cast<int>(options.continuation) *
                    layout_.token_bytes),
        workers_(pool.threads()) {
    for (Worker& worker : workers_) worker.token_uses.assign(vocab_size, 0);
    totals_.token_uses.assign(vocab_size, 0);
  }

  absl::StatusOr<TreeTotals> Build(uint64_t count) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Group> groups,
                               PlanGroups(count));
    for (size_t g = 0; g < groups.size(); ++g) {
      std::vector<SelectedNgram<W>> ngrams(groups[g].count);
      FORETOKEN_RETURN_IF_ERROR(selected_.Read(
          groups[g].first * sizeof(SelectedNgram<W>), ngrams.data(),
          ngrams.size() * sizeof(SelectedNgram<W>)));
      // Every group takes one scan of the whole token file.
      MatchStore<W> store(ngrams, options_.max_matches, item_bytes_);
      ngrams = {};  // the store has its own copy of the keys
      const std::string part = absl::StrFormat("%d/%d", g + 1, groups.size());
      FORETOKEN_RETURN_IF_ERROR(Gather(store, "gather " + part));
      FORETOKEN_RETURN_IF_ERROR(WriteTrees(store, "trees " + part));
    }
    for (const Worker& worker : workers_) {
      for (size_t t = 0; t < worker.token_uses.size(); ++t) {
        // Sums of integers: the same whichever thread built which tree.
        totals_.token_uses[t] += worker.token_uses[t];
      }
      for (size_t n = 0; n < totals_.levels.size(); ++n) {
        totals_.levels[n].Add(worker.levels[n].entries,
                              worker.levels[n].least_count);
      }
    }
    return totals_;
  }

 private:
  struct Worker {
    std::vector<uint8_t> bytes;
    std::vector<uint8_t> item;
    std::vector<uint32_t> order;
    TreeSelector selector;
    CrestTree tree;
    std::vector<uint64_t> token_uses;
    std::array<TreeTotals::Level, kMaxCrestN> levels{};
  };
  struct Block {
    std::string records;
    uint64_t entries = 0;
    uint64_t nodes = 0;
  };

  // Groups consecutive n-grams whose matches fit into memory together.
  absl::StatusOr<std::vector<Group>> PlanGroups(uint64_t count) {
    std::vector<Group> groups;
    std::vector<SelectedNgram<W>> block;
    const uint64_t threads = static_cast<uint64_t>(pool_.threads());
    const uint64_t fixed =
        threads *
            TreeThreadBytes(options_.tree_nodes,
                            static_cast<int32_t>(totals_.token_uses.size())) +
        kPlanBlock * sizeof(SelectedNgram<W>);
    const uint64_t memory =
        options_.memory_bytes - std::min(options_.memory_bytes, fixed);
    uint64_t cost = 0;
    uint64_t thread_cost = 0;  // maximum within the group
    for (uint64_t first = 0; first < count; first += kPlanBlock) {
      block.resize(std::min(kPlanBlock, count - first));
      FORETOKEN_RETURN_IF_ERROR(
          selected_.Read(first * sizeof(SelectedNgram<W>), block.data(),
                         block.size() * sizeof(SelectedNgram<W>)));
      for (size_t i = 0; i < block.size(); ++i) {
        const uint64_t own = MatchStore<W>::CostOf(
            block[i].count, options_.max_matches, item_bytes_);
        const uint64_t own_thread_cost =
            threads *
            MatchStore<W>::ThreadCostOf(block[i].count, options_.max_matches);
        // It would not fit into a group of its own either.
        if (own + own_thread_cost > memory) {
          return absl::ResourceExhaustedError(
              absl::StrCat("memory: the matches of one n-gram, at most ",
                           options_.max_matches, ", take ",
                           own + own_thread_cost, " bytes, ", memory,
                           " are left: want ", own + own_thread_cost - memory,
                           " bytes more, or a lower max_matches"));
        }
        // Matches add up over a group. A thread's scratch is used for one
        // n-gram after the other, so only the largest counts.
        if (groups.empty() || groups.back().count == kMaxGroup ||
            cost + own + std::max(thread_cost, own_thread_cost) > memory) {
          groups.push_back({first + i, 0});
          cost = 0;
          thread_cost = 0;
        }
        cost += own;
        thread_cost = std::max(thread_cost, own_thread_cost);
        ++groups.back().count;
      }
    }
    return groups;
  }

  absl::Status Gather(MatchStore<W>& store, const std::string& what) {
    Progress progress(what, tokens_.positions(), "tokens", options_.progress);
    const uint64_t chunks = (tokens_.positions() + kScanChunk - 1) / kScanChunk;
    return ParallelWithStatus(
        pool_, static_cast<int64_t>(chunks),
        [&](int64_t chunk, int thread) -> absl::Status {
          const uint64_t first = static_cast<uint64_t>(chunk) * kScanChunk;
          const uint64_t count =
              std::min(kScanChunk, tokens_.positions() - first);
          FORETOKEN_RETURN_IF_ERROR(
              Scan(first, count, store, workers_[thread]));
          progress.Advance(count);
          return absl::OkStatus();
        });
  }

  absl::Status Scan(uint64_t first, uint64_t count, MatchStore<W>& store,
                    Worker& worker) {
    const int tb = layout_.token_bytes;
    const int ahead = layout_.max_n + static_cast<int>(options_.continuation);
    FORETOKEN_RETURN_IF_ERROR(tokens_.Read(first, count, ahead, worker.bytes));
    worker.item.resize(item_bytes_);
    int left = 0;  // tokens from p to the end of the document, at most `ahead`
    // Backwards, for `left`; positions of the look-ahead only count.
    for (uint64_t p = count + ahead; p-- > 0;) {
      const uint8_t* at = worker.bytes.data() + p * tb;
      left = LoadToken(at, tb) == 0 ? 0 : std::min(left + 1, ahead);
      if (p >= count || left < min_n_) continue;
      const NgramKey<W> key = NgramKey<W>::Load(at);
      const uint64_t position_key = MixPosition(options_.seed, first + p);
      const int longest = std::min(left, layout_.max_n);
      for (int n = min_n_; n <= longest; ++n) {
        const int64_t entry = store.Find(key & masks_[n]);
        if (entry < 0) continue;
        const int follow =
            std::min(left - n, static_cast<int>(options_.continuation)) * tb;
        std::memcpy(worker.item.data(), at + n * tb, follow);
        // Zeros, which end documents, fill up a continuation that the document
        // cuts short: items of one length can be compared with memcmp.
        std::memset(worker.item.data() + follow, 0, item_bytes_ - follow);
        // Ties of the key are broken by the whole continuation.
        const uint64_t sample_key = options_.sample == MatchSample::kFirst
                                        ? FirstBytes(worker.item)
                                        : position_key;
        store.Offer(entry, sample_key, worker.item.data());
      }
    }
    return absl::OkStatus();
  }

  // Builds blocks of entries in parallel and writes them in order, a wave at a
  // time to bound the memory.
  absl::Status WriteTrees(MatchStore<W>& store, const std::string& what) {
    Progress progress(what, store.size(), "n-grams", options_.progress);
    const size_t wave = kBlocksPerThread * pool_.threads() * kBlockEntries;
    for (size_t begin = 0; begin < store.size(); begin += wave) {
      const size_t end = std::min(begin + wave, store.size());
      std::vector<Block> blocks((end - begin + kBlockEntries - 1) /
                                kBlockEntries);
      pool_.ParallelForThreads(
          static_cast<int64_t>(blocks.size()), [&](int64_t b, int thread) {
            const size_t from = begin + static_cast<size_t>(b) * kBlockEntries;
            for (size_t e = from; e < std::min(from + kBlockEntries, end);
                 ++e) {
              AddTree(store, e, workers_[thread], blocks[b]);
            }
          });
      for (const Block& block : blocks) {
        FORETOKEN_RETURN_IF_ERROR(
            trees_.Append(block.records.data(), block.records.size()));
        totals_.entries += block.entries;
        totals_.nodes += block.nodes;
      }
      progress.Advance(end - begin);
    }
    return absl::OkStatus();
  }

  void AddTree(MatchStore<W>& store, size_t entry, Worker& worker,
               Block& block) {
    // Several workers offered matches in any order; sorting makes the tree
    // independent of it.
    const uint32_t matches = store.Finish(entry);
    std::vector<uint32_t>& order = worker.order;
    order.resize(matches);
    std::iota(order.begin(), order.end(), 0);
    // Sorted continuations are the trie that TreeSelector reads.
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return std::memcmp(store.item(entry, a), store.item(entry, b),
                         item_bytes_) < 0;
    });
    const int tb = layout_.token_bytes;
    CrestTree& tree = worker.tree;
    worker.selector.SelectBest(
        0, matches, static_cast<int>(options_.continuation),
        static_cast<int>(options_.tree_nodes),
        [&](int64_t i, int depth) {
          return static_cast<TokenId>(
                     LoadToken(store.item(entry, order[i]) + depth * tb, tb)) -
                 1;
        },
        tree);
    if (options_.selection == TreeSelection::kRest) {
      worker.selector.CutToPathSum(static_cast<int>(options_.tree_nodes), tree);
    }
    // An n-gram that occurs only at the end of documents has nothing to draft.
    if (tree.size() == 0) return;
    TokenId ngram[kMaxCrestN];
    const int n = layout_.Tokens(store.key(entry), ngram);
    AppendRecord({ngram, static_cast<size_t>(n)}, tree, table_, block.records);
    for (int i = 0; i < n; ++i) ++worker.token_uses[ngram[i]];
    for (const TokenId token : tree.tokens) ++worker.token_uses[token];
    worker.levels[n - 1].Add(1, store.count(entry));
    ++block.entries;
    block.nodes += tree.size();
  }

  const TokenFile& tokens_;
  const SpillFile& selected_;
  const StageOptions options_;
  const KeyLayout layout_;
  const int min_n_;
  const TokenTable& table_;
  ThreadPool& pool_;
  SpillFile& trees_;
  const std::vector<NgramKey<W>> masks_;
  const int item_bytes_;
  std::vector<Worker> workers_;  // [threads]
  TreeTotals totals_;
};

}  // namespace

uint64_t TreeThreadBytes(uint32_t tree_nodes, int32_t vocab_size) {
  constexpr uint64_t kNodeBytes = 14;  // encoded, at most
  constexpr uint64_t kHeadBytes = 64;
  const uint64_t blocks =
      kBlocksPerThread * kBlockEntries * (tree_nodes * kNodeBytes + kHeadBytes);
  return blocks + 4 * kScanChunk +
         static_cast<uint64_t>(vocab_size) * sizeof(uint64_t);
}

absl::StatusOr<TreeTotals> BuildTrees(const TokenFile& tokens,
                                      const SpillFile& selected, uint64_t count,
                                      const StageOptions& options,
                                      const TokenTable& table,
                                      int32_t vocab_size, ThreadPool& pool,
                                      SpillFile& trees) {
  return WithKeyWords(options.layout,
                      [&]<int W>() -> absl::StatusOr<TreeTotals> {
                        return TreeBuilder<W>(tokens, selected, options, table,
                                              vocab_size, pool, trees)
                            .Build(count);
                      });
}

}  // namespace foretoken
