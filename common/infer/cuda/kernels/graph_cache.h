// Decides which graphs of passes are kept: the least recently used makes room,
// but only after a long while without use. So a server whose passes have
// more sizes than there is room for runs some of them without a graph, and
// never spends its time on making graphs that it is about to destroy.
//
// `Graph` is a handle that is false where there is none. Owned by one thread.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_GRAPH_CACHE_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_GRAPH_CACHE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "common/infer/cuda/kernels/pass_tier.h"

namespace foretoken::device {

template <typename Graph>
class GraphCache {
 public:
  static constexpr size_t kMostGraphs = 128;
  // A graph may go after this many passes without it: at most one graph in
  // kIdlePasses / kMostGraphs passes is made to replace another.
  static constexpr int64_t kIdlePasses = 1024;
  // Passes without a new graph after memory for one was short.
  static constexpr int64_t kPausePasses = 32;

  explicit GraphCache(void (*destroy)(Graph)) : destroy_(destroy) {}
  ~GraphCache() { Clear(); }
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  // A pass of these sizes begins: its graph, if there is one.
  Graph Begin(const PassSizes& sizes) {
    ++pass_;
    const auto found = entries_.find(sizes);
    missing_ = found == entries_.end();
    if (missing_) return Graph();
    found->second.used = pass_;
    return found->second.graph;
  }

  // Whether the caller should make a graph of the pass that Begin named, and
  // Add it. False for sizes whose graph could not be made.
  bool wants_graph() const {
    return missing_ && pass_ > paused_until_ &&
           (entries_.size() < kMostGraphs ||
            pass_ - Stalest()->second.used > kIdlePasses);
  }

  // Takes over `graph`; one that is false stands for "cannot be made" and is
  // kept like any other, so that it is not tried at every pass.
  void Add(const PassSizes& sizes, Graph graph) {
    if (entries_.size() >= kMostGraphs) {
      const auto stalest = Stalest();
      Destroy(stalest->second.graph);
      entries_.erase(stalest);
    }
    entries_.emplace(sizes, Entry{graph, pass_});
    missing_ = false;
  }

  void Clear() {
    for (auto& [sizes, entry] : entries_) Destroy(entry.graph);
    entries_.clear();
  }

  // There is too little memory for graphs: drops all, and makes none for a
  // while.
  void ClearAndPause() {
    Clear();
    missing_ = false;
    paused_until_ = pass_ + kPausePasses;
  }

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Graph graph;
    int64_t used = 0;  // the last pass of its sizes
  };
  using Entries = std::map<PassSizes, Entry>;

  void Destroy(Graph graph) {
    if (graph) destroy_(graph);
  }
  typename Entries::const_iterator Stalest() const {
    return std::min_element(entries_.begin(), entries_.end(),
                            [](const auto& a, const auto& b) {
                              return a.second.used < b.second.used;
                            });
  }

  void (*const destroy_)(Graph);
  Entries entries_;
  int64_t pass_ = 0;
  int64_t paused_until_ = 0;
  bool missing_ = false;
};

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_GRAPH_CACHE_H_
