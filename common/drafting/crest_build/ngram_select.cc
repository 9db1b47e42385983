#include "common/drafting/crest_build/ngram_select.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/drafting/crest_build/parallel_status.h"
#include "common/drafting/crest_build/run_merger.h"

namespace foretoken {
namespace {

constexpr uint64_t kMinBufferBytes = uint64_t{16} << 10;
constexpr uint64_t kMaxBufferBytes = uint64_t{1} << 20;
constexpr size_t kCandidateBufferBytes = size_t{64} << 10;
// Several ranges per thread even out the differences in their size.
constexpr int kRangesPerThread = 8;

struct Extent {
  uint64_t offset;
  uint64_t bytes;
};

// Collects fixed-size records into extents of a shared file.
class ExtentWriter {
 public:
  absl::Status Append(SpillFile& file, const void* record, size_t bytes) {
    const uint8_t* from = static_cast<const uint8_t*>(record);
    buffer_.insert(buffer_.end(), from, from + bytes);
    return buffer_.size() < kCandidateBufferBytes ? absl::OkStatus()
                                                  : Flush(file);
  }
  absl::Status Flush(SpillFile& file) {
    if (buffer_.empty()) return absl::OkStatus();
    const uint64_t offset = file.Allocate(buffer_.size());
    extents_.push_back({offset, buffer_.size()});
    FORETOKEN_RETURN_IF_ERROR(
        file.Write(offset, buffer_.data(), buffer_.size()));
    buffer_ = {};
    return absl::OkStatus();
  }
  const std::vector<Extent>& extents() const { return extents_; }

 private:
  std::vector<uint8_t> buffer_;
  std::vector<Extent> extents_;
};

template <int W>
class Selector {
 public:
  Selector(const StageOptions& options, ThreadPool& pool, SpillFile& candidates,
           Progress& progress)
      : options_(options),
        layout_(options.layout),
        min_n_(static_cast<int>(options.min_n)),
        pool_(pool),
        candidates_(candidates),
        progress_(progress),
        masks_(layout_.Masks<W>()) {}

  // Merges groups of runs until one final merge can take all of them.
  absl::Status LimitFanIn(const SpillFile*& file, std::vector<NgramRun>& runs,
                          SpillFile& merged) {
    const uint64_t per_thread = options_.memory_bytes / pool_.threads();
    const size_t fan_in = static_cast<size_t>(
        std::max<uint64_t>(2, per_thread / kMinBufferBytes));
    while (runs.size() > fan_in) {
      const size_t groups = (runs.size() + fan_in - 1) / fan_in;
      std::vector<NgramRun> next(groups);
      FORETOKEN_RETURN_IF_ERROR(ParallelWithStatus(
          pool_, static_cast<int64_t>(groups),
          [&](int64_t g, int) -> absl::Status {
            const size_t begin = static_cast<size_t>(g) * fan_in;
            const auto group = absl::MakeConstSpan(runs).subspan(begin, fan_in);
            // A merge reads every run of its group through a buffer of its own.
            FORETOKEN_ASSIGN_OR_RETURN(next[g],
                                       MergeGroup(*file, group, merged));
            return absl::OkStatus();
          }));
      runs = std::move(next);
      // Later rounds read from the file that they append to.
      file = &merged;
    }
    return absl::OkStatus();
  }

  // Merges all runs, range by range, into histograms and candidate lists.
  absl::Status Count(const SpillFile& file, absl::Span<const NgramRun> runs,
                     const std::vector<uint64_t>& unigrams) {
    // Ranges of first tokens: all occurrences of an n-gram are in one range.
    const std::vector<uint32_t> bounds = RangeBounds(unigrams);
    ranges_.resize(bounds.size() - 1);
    const uint64_t per_run = options_.memory_bytes / pool_.threads() /
                             std::max<size_t>(1, runs.size());
    const size_t buffer = static_cast<size_t>(
        std::clamp(per_run, kMinBufferBytes, kMaxBufferBytes));
    return ParallelWithStatus(
        pool_, static_cast<int64_t>(ranges_.size()),
        [&](int64_t r, int) -> absl::Status {
          std::vector<NgramRun> slices;
          for (const NgramRun& run : runs) {
            FORETOKEN_ASSIGN_OR_RETURN(
                const uint64_t begin,
                RecordsBelow(file, layout_, run, bounds[r]));
            FORETOKEN_ASSIGN_OR_RETURN(
                const uint64_t end,
                RecordsBelow(file, layout_, run, bounds[r + 1]));
            slices.push_back(
                {run.offset + begin * RunRecordBytes(layout_), end - begin});
          }
          return CountRange(file, slices, buffer, ranges_[r]);
        });
  }

  // Filters the candidates by the threshold of each n.
  absl::StatusOr<NgramSelection> Select(SpillFile& selected) {
    NgramSelection selection;
    for (int n = min_n_; n <= layout_.max_n; ++n) {
      CountHistogram all;
      // The threshold needs the counts of all ranges, so candidates were
      // written down first and are filtered only now.
      for (const Range& range : ranges_) all.Merge(range.histograms[n - 1]);
      const CountHistogram::Threshold threshold =
          all.Top(options_.top, options_.min_count);
      CrestLevelMeta& level = selection.levels[n - 1];
      level.distinct = all.distinct();
      level.occurrences = all.occurrences();
      selection.coverage[n - 1] = all.Coverage();
      selection.selected += threshold.kept;
      FORETOKEN_RETURN_IF_ERROR(Filter(n, threshold, selected));
    }
    return selection;
  }

 private:
  struct Range {
    CountHistogram histograms[kMaxCrestN];  // [n - 1]
    ExtentWriter candidates[kMaxCrestN];    // [n - 1]
  };

  // Bounds, as stored first-token values, of ranges with about equally many
  // positions.
  std::vector<uint32_t> RangeBounds(
      const std::vector<uint64_t>& unigrams) const {
    uint64_t total = 0;
    for (const uint64_t count : unigrams) total += count;
    // One more than the share, so that it is never 0.
    const uint64_t share =
        total / (static_cast<uint64_t>(pool_.threads()) * kRangesPerThread) + 1;
    std::vector<uint32_t> bounds = {0};
    uint64_t sum = 0;
    for (size_t token = 0; token < unigrams.size(); ++token) {
      sum += unigrams[token];
      if (sum >= share) {
        // The stored value is the token + 1, and the bound is exclusive.
        bounds.push_back(static_cast<uint32_t>(token) + 2);
        sum = 0;
      }
    }
    // Beyond every stored token, so the last range takes the rest.
    bounds.push_back(UINT32_MAX);
    return bounds;
  }

  absl::StatusOr<NgramRun> MergeGroup(const SpillFile& file,
                                      absl::Span<const NgramRun> group,
                                      SpillFile& merged) {
    NgramRun out;
    for (const NgramRun& run : group) out.records += run.records;
    // The merged run is at most as long as its parts.
    out.offset = merged.Allocate(out.records * RunRecordBytes(layout_));
    out.records = 0;
    RunMerger<W> merger(file, layout_, group, kMinBufferBytes);
    std::vector<uint8_t> buffer;
    uint64_t offset = out.offset;
    NgramKey<W> key;
    uint64_t count = 0;
    while (true) {
      FORETOKEN_ASSIGN_OR_RETURN(const bool more, merger.Next(key, count));
      // Written whenever the buffer is full, and once more at the end.
      if (!more || buffer.size() >= kCandidateBufferBytes) {
        FORETOKEN_RETURN_IF_ERROR(
            merged.Write(offset, buffer.data(), buffer.size()));
        offset += buffer.size();
        buffer.clear();
      }
      if (!more) return out;
      // A count too large for the field is split into several records; the next
      // merge joins them again.
      while (count > 0) {
        const uint32_t part =
            static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX));
        uint8_t record[8 * W + kRunCountBytes];
        key.Store(record);
        std::memcpy(record + layout_.key_bytes(), &part, kRunCountBytes);
        buffer.insert(buffer.end(), record, record + RunRecordBytes(layout_));
        ++out.records;
        count -= part;
      }
    }
  }

  // Sums counts over shared prefixes: counts[n] is that of the first n tokens
  // of `last`, and is complete once a key differs within them.
  absl::Status CountRange(const SpillFile& file,
                          absl::Span<const NgramRun> slices, size_t buffer,
                          Range& range) {
    RunMerger<W> merger(file, layout_, slices, buffer);
    NgramKey<W> last;
    uint64_t counts[kMaxCrestN + 1] = {};
    bool any = false;
    uint64_t unreported = 0;
    while (true) {
      NgramKey<W> key;
      uint64_t count = 0;
      FORETOKEN_ASSIGN_OR_RETURN(const bool more, merger.Next(key, count));
      const int common =
          more && any ? CommonBytes(key, last) / layout_.token_bytes : 0;
      // From the longest n-gram that ends here to the shortest: each hands its
      // count on to its prefix.
      for (int n = layout_.max_n; any && n > common; --n) {
        FORETOKEN_RETURN_IF_ERROR(Emit(n, last, counts[n], range));
        // The prefix occurs wherever this n-gram does.
        counts[n - 1] += counts[n];
        counts[n] = 0;
      }
      if (!more) break;
      last = key;
      any = true;
      counts[layout_.max_n] += count;
      if (++unreported == (1 << 16)) {
        progress_.Advance(std::exchange(unreported, 0));
      }
    }
    progress_.Advance(unreported);
    for (ExtentWriter& writer : range.candidates) {
      FORETOKEN_RETURN_IF_ERROR(writer.Flush(candidates_));
    }
    return absl::OkStatus();
  }

  absl::Status Emit(int n, const NgramKey<W>& key, uint64_t count,
                    Range& range) {
    const NgramKey<W> prefix = key & masks_[n];
    // A key that ends before n tokens belongs to a shorter n-gram.
    // Its last token is a document's end: the position has no n-gram of this
    // length.
    if (n < min_n_ || prefix == (key & masks_[n - 1])) {
      return absl::OkStatus();
    }
    range.histograms[n - 1].Add(count);
    // Counted in the histogram all the same, which reports what was left out.
    if (count < options_.min_count) return absl::OkStatus();
    const SelectedNgram<W> candidate{prefix, count};
    return range.candidates[n - 1].Append(candidates_, &candidate,
                                          sizeof(candidate));
  }

  absl::Status Filter(int n, const CountHistogram::Threshold& threshold,
                      SpillFile& selected) {
    // Candidates come in key order, so the lowest sequences take the ties.
    // How many with exactly the threshold's count fit in.
    uint64_t ties = threshold.ties;
    std::vector<SelectedNgram<W>> block;
    std::vector<SelectedNgram<W>> kept;
    for (const Range& range : ranges_) {
      for (const Extent& extent : range.candidates[n - 1].extents()) {
        block.resize(extent.bytes / sizeof(SelectedNgram<W>));
        FORETOKEN_RETURN_IF_ERROR(
            candidates_.Read(extent.offset, block.data(), extent.bytes));
        kept.clear();
        for (const SelectedNgram<W>& candidate : block) {
          const bool tie = candidate.count == threshold.count && ties > 0;
          if (tie) --ties;
          if (tie || candidate.count > threshold.count) {
            kept.push_back(candidate);
          }
        }
        FORETOKEN_RETURN_IF_ERROR(selected.Append(
            kept.data(), kept.size() * sizeof(SelectedNgram<W>)));
      }
    }
    return absl::OkStatus();
  }

  const StageOptions options_;
  const KeyLayout layout_;
  const int min_n_;
  ThreadPool& pool_;
  SpillFile& candidates_;
  Progress& progress_;
  const std::vector<NgramKey<W>> masks_;
  std::vector<Range> ranges_;
};

}  // namespace

absl::StatusOr<NgramSelection> SelectNgrams(
    const SpillFile& run_file, std::vector<NgramRun> runs,
    const std::vector<uint64_t>& unigrams, const StageOptions& options,
    ThreadPool& pool, SpillFile& merged, SpillFile& candidates,
    SpillFile& selected, Progress& progress) {
  return WithKeyWords(
      options.layout, [&]<int W>() -> absl::StatusOr<NgramSelection> {
        Selector<W> selector(options, pool, candidates, progress);
        const SpillFile* file = &run_file;
        FORETOKEN_RETURN_IF_ERROR(selector.LimitFanIn(file, runs, merged));
        // Too many runs would need more open buffers than the memory allows:
        // merge groups of them first.
        FORETOKEN_RETURN_IF_ERROR(selector.Count(*file, runs, unigrams));
        return selector.Select(selected);
      });
}

}  // namespace foretoken
