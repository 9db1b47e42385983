#include "common/drafting/replay.h"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

double NowUs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

// Time that `work` takes. CPU time is read inside wall time, so that each
// sample includes at most one read of the CPU clock.
template <typename Work>
ReplayTime Measure(Work work) {
  const double wall = NowUs(CLOCK_MONOTONIC);
  const double cpu = NowUs(CLOCK_THREAD_CPUTIME_ID);
  work();
  const double cpu_us = NowUs(CLOCK_THREAD_CPUTIME_ID) - cpu;
  return {cpu_us, NowUs(CLOCK_MONOTONIC) - wall};
}

// Adds `counts` to `sum` element by element, which grows as needed.
void AddTo(std::vector<int64_t>& sum, const std::vector<int64_t>& counts) {
  sum.resize(std::max(sum.size(), counts.size()));
  for (size_t i = 0; i < counts.size(); ++i) sum[i] += counts[i];
}

}  // namespace

float Percentile(std::vector<float> samples, double share) {
  if (samples.empty()) return 0;
  const size_t rank = std::min(
      samples.size() - 1, static_cast<size_t>(std::floor(
                              share * static_cast<double>(samples.size()))));
  std::nth_element(samples.begin(), samples.begin() + rank, samples.end());
  return samples[rank];
}

void FindAcceptedPath(const DraftTree& tree,
                      absl::Span<const TokenId> continuation,
                      std::vector<int32_t>& path) {
  path.clear();
  int32_t at = kRootParent;
  // Children follow their parents, so one scan finds the path in order.
  for (int32_t node = 0;
       node < tree.size() && path.size() < continuation.size(); ++node) {
    if (tree.parents[node] == at &&
        tree.tokens[node] == continuation[path.size()]) {
      at = node;
      path.push_back(node);
    }
  }
}

struct Replayer::TurnCounts {
  int64_t tokens = 0;
  int64_t rounds = 0;
  std::vector<int64_t> rounds_by_length;
  int64_t tree_nodes = 0;
  int64_t rounds_without_accept = 0;
};

Replayer::Replayer(Drafter& drafter, int max_tree_nodes)
    : drafter_(drafter), max_tree_nodes_(max_tree_nodes) {
  FORETOKEN_CHECK(max_tree_nodes >= 1);
  // Reading the thread clock is a system call and can cost more than a draft,
  // so its median cost is subtracted from every sample.
  constexpr int kReads = 2001;
  std::vector<float> cpu(kReads), wall(kReads);
  for (int i = 0; i < kReads; ++i) {
    const ReplayTime nothing = Measure([] {});
    cpu[i] = static_cast<float>(nothing.cpu_us);
    wall[i] = static_cast<float>(nothing.wall_us);
  }
  clocks_ = {Percentile(cpu, 0.5), Percentile(wall, 0.5)};
}

absl::Status Replayer::CheckTree() const {
  const int size = tree_.size();
  if (size > max_tree_nodes_ || tree_.parents.size() != tree_.tokens.size() ||
      tree_.probs.size() != tree_.tokens.size()) {
    return absl::InternalError(absl::StrCat(
        "draft of ", size, " nodes, ", tree_.parents.size(), " parents, ",
        tree_.probs.size(), " estimates, want at most ", max_tree_nodes_));
  }
  for (int node = 0; node < size; ++node) {
    if (tree_.parents[node] < kRootParent || tree_.parents[node] >= node) {
      return absl::InternalError(
          absl::StrCat("draft node ", node, " has parent ", tree_.parents[node],
                       ", want -1..", node - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status Replayer::ReplayTurn(const RecordedTurn& turn,
                                  TurnCounts& counts) {
  const absl::Span<const TokenId> output(turn.output);
  const auto measure = [&](auto work) {
    const ReplayTime took = Measure(work);
    return ReplayTime{std::max(0.0, took.cpu_us - clocks_.cpu_us),
                      std::max(0.0, took.wall_us - clocks_.wall_us)};
  };
  const auto insert = [&](auto work) {
    const ReplayTime took = measure(work);
    costs_.insert_cpu_us += took.cpu_us;
    costs_.insert_wall_us += took.wall_us;
  };
  const auto commit = [&](absl::Span<const TokenId> tokens) {
    insert([&] { drafter_.Commit(tokens); });
  };
  costs_.prompt_cpu_us +=
      measure([&] { drafter_.StartRequest(turn.prompt); }).cpu_us;
  commit(output.subspan(0, 1));  // the token from prefill
  for (size_t done = 1; done < output.size();) {
    const ReplayTime took =
        measure([&] { drafter_.Draft(max_tree_nodes_, tree_); });
    costs_.draft_cpu_us.push_back(static_cast<float>(took.cpu_us));
    costs_.draft_wall_us.push_back(static_cast<float>(took.wall_us));
    FORETOKEN_RETURN_IF_ERROR(drafter_.DraftStatus());
    FORETOKEN_RETURN_IF_ERROR(CheckTree());

    FindAcceptedPath(tree_, output.subspan(done), path_);
    // The accepted path plus a bonus token, never past the end of the
    // recording.
    const size_t committed = std::min(path_.size() + 1, output.size() - done);
    commit(output.subspan(done, committed));
    done += committed;
    ++counts.rounds;
    if (counts.rounds_by_length.size() < committed) {
      counts.rounds_by_length.resize(committed);
    }
    ++counts.rounds_by_length[committed - 1];
    counts.tokens += static_cast<int64_t>(committed);
    counts.tree_nodes += tree_.size();
    counts.rounds_without_accept += path_.empty();
  }
  costs_.prompt_tokens += static_cast<int64_t>(turn.prompt.size());
  costs_.inserted_tokens += static_cast<int64_t>(output.size());
  costs_.request_tokens +=
      static_cast<int64_t>(turn.prompt.size() + output.size());
  // Before EndRequest, which drops the request's state.
  costs_.request_bytes += static_cast<double>(drafter_.RequestBytes());
  insert([&] { drafter_.EndRequest(); });
  return absl::OkStatus();
}

absl::StatusOr<ReplaySetResult> Replayer::Replay(
    const RecordedSet& set, absl::Span<const RecordedSet> history,
    Progress progress) {
  drafter_.ForgetShared();
  for (const RecordedSet& past : history) {
    for (const RecordedTurn& turn : past.turns) {
      drafter_.AddHistory(turn.output);
    }
  }
  ReplaySetResult result;
  result.file = set.file;
  result.prompt_tokens = set.prompt_tokens();
  result.output_tokens = set.output_tokens();
  for (size_t i = 0; i < set.turns.size(); ++i) {
    const RecordedTurn& turn = set.turns[i];
    TurnCounts counts;
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(ReplayTurn(turn, counts),
                 absl::StrCat(set.file, ": turn ", i, " (", turn.id, ")")));
    const auto add = [&](ReplayCounts& sum) {
      ++sum.turns;
      sum.tokens += counts.tokens;
      sum.rounds += counts.rounds;
      AddTo(sum.rounds_by_length, counts.rounds_by_length);
    };
    add(result.all);
    if (!turn.hit_length_limit) add(result.without_loops);
    add(result.categories[turn.category]);
    result.tree_nodes += counts.tree_nodes;
    result.rounds_without_accept += counts.rounds_without_accept;
    progress(static_cast<int64_t>(i) + 1);
  }
  costs_.history_bytes += static_cast<double>(drafter_.SharedBytes());
  costs_.history_tokens += drafter_.SharedTokens();
  return result;
}

}  // namespace foretoken
