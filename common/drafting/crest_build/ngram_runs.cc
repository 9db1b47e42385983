#include "common/drafting/crest_build/ngram_runs.h"

#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"
#include "common/drafting/crest_build/parallel_status.h"

namespace foretoken {
namespace {

// Above a few million keys, longer runs save little merging and cost cache
// misses in the sort.
constexpr uint64_t kMinChunk = uint64_t{1} << 14;
constexpr uint64_t kMaxChunk = uint64_t{1} << 22;

template <int W>
class RunWriter {
 public:
  RunWriter(const TokenFile& tokens, const StageOptions& options,
            SpillFile& file)
      : tokens_(tokens),
        layout_(options.layout),
        min_n_(static_cast<int>(options.min_n)),
        file_(file),
        masks_(layout_.Masks<W>()) {}

  // Memory per position of a chunk, in bytes.
  static uint64_t BytesPerPosition(const KeyLayout& layout) {
    return 2 * sizeof(NgramKey<W>) + layout.token_bytes +
           RunRecordBytes(layout);
  }

  absl::StatusOr<NgramRun> Write(uint64_t first, uint64_t count) {
    FORETOKEN_RETURN_IF_ERROR(
        // An n-gram that starts in the chunk may end beyond it.
        tokens_.Read(first, count, layout_.max_n - 1, bytes_));
    LoadKeys(count);
    RadixSort(keys_, scratch_, size_, layout_.key_bytes());
    Collapse();
    NgramRun run;
    run.records = records_.size() / RunRecordBytes(layout_);
    run.offset = file_.Allocate(records_.size());
    FORETOKEN_RETURN_IF_ERROR(
        file_.Write(run.offset, records_.data(), records_.size()));
    return run;
  }

 private:
  // Loads one key of up to max_n tokens per position. Its prefixes are the
  // shorter n-grams; ngram_select.cc counts them all in one pass.
  void LoadKeys(uint64_t count) {
    keys_.resize(count);
    scratch_.resize(count);
    size_ = 0;
    const int tb = layout_.token_bytes;
    // Backwards, so that the distance to the end of the document is known.
    int left = 0;
    for (uint64_t p = count + layout_.max_n - 1; p-- > 0;) {
      const uint8_t* at = bytes_.data() + p * tb;
      left = LoadToken(at, tb) == 0 ? 0 : std::min(left + 1, layout_.max_n);
      if (p >= count || left < min_n_) continue;
      keys_[size_++] = NgramKey<W>::Load(at) & masks_[left];
    }
  }

  void Collapse() {
    const int key_bytes = layout_.key_bytes();
    records_.clear();
    uint8_t record[8 * W + kRunCountBytes];
    for (size_t i = 0; i < size_;) {
      size_t end = i + 1;
      // Equal keys are neighbours, because the keys are sorted.
      while (end < size_ && keys_[end] == keys_[i]) ++end;
      keys_[i].Store(record);
      // Fits: a chunk has at most kMaxChunk positions.
      const uint32_t count = static_cast<uint32_t>(end - i);
      std::memcpy(record + key_bytes, &count, kRunCountBytes);
      records_.insert(records_.end(), record,
                      record + key_bytes + kRunCountBytes);
      i = end;
    }
  }

  const TokenFile& tokens_;
  const KeyLayout layout_;
  const int min_n_;
  SpillFile& file_;
  const std::vector<NgramKey<W>> masks_;
  std::vector<uint8_t> bytes_;
  std::vector<NgramKey<W>> keys_;
  std::vector<NgramKey<W>> scratch_;
  size_t size_ = 0;
  std::vector<uint8_t> records_;
};

template <int W>
absl::StatusOr<std::vector<NgramRun>> WriteRuns(const TokenFile& tokens,
                                                const StageOptions& options,
                                                ThreadPool& pool,
                                                SpillFile& file,
                                                Progress& progress) {
  // `records_` grows by doubling, so count it twice.
  const uint64_t per_position = RunWriter<W>::BytesPerPosition(options.layout) +
                                RunRecordBytes(options.layout);
  const uint64_t chunk =
      std::clamp(options.memory_bytes / pool.threads() / per_position,
                 kMinChunk, kMaxChunk);
  const uint64_t chunks = (tokens.positions() + chunk - 1) / chunk;
  std::vector<RunWriter<W>> writers(pool.threads(),
                                    RunWriter<W>(tokens, options, file));
  std::vector<NgramRun> runs(chunks);
  FORETOKEN_RETURN_IF_ERROR(ParallelWithStatus(
      pool, static_cast<int64_t>(chunks),
      [&](int64_t i, int thread) -> absl::Status {
        const uint64_t first = static_cast<uint64_t>(i) * chunk;
        const uint64_t count = std::min(chunk, tokens.positions() - first);
        FORETOKEN_ASSIGN_OR_RETURN(runs[i],
                                   writers[thread].Write(first, count));
        progress.Advance(count);
        return absl::OkStatus();
      }));
  return runs;
}

}  // namespace

absl::StatusOr<std::vector<NgramRun>> WriteNgramRuns(
    const TokenFile& tokens, const StageOptions& options, ThreadPool& pool,
    SpillFile& runs, Progress& progress) {
  return WithKeyWords(options.layout, [&]<int W>() {
    return WriteRuns<W>(tokens, options, pool, runs, progress);
  });
}

}  // namespace foretoken
