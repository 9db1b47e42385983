// Counting n-grams, second half: merging runs.
//
// RunMerger yields the records of many runs in key order, merging equal keys.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_RUN_MERGER_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_RUN_MERGER_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/drafting/crest_build/ngram_key.h"
#include "common/drafting/crest_build/ngram_runs.h"
#include "common/drafting/crest_build/spill_file.h"

namespace foretoken {

// Number of records in a run whose first tokens (stored values) are below
// `bound`, by binary search on disk.
absl::StatusOr<uint64_t> RecordsBelow(const SpillFile& file,
                                      const KeyLayout& layout,
                                      const NgramRun& run, uint32_t bound);

// Owned by one thread.
template <int W>
class RunMerger {
 public:
  // Uses one buffer of `buffer_bytes` per run.
  RunMerger(const SpillFile& file, const KeyLayout& layout,
            absl::Span<const NgramRun> runs, size_t buffer_bytes)
      : file_(file),
        layout_(layout),
        record_bytes_(RunRecordBytes(layout)),
        buffer_records_(std::max<size_t>(1, buffer_bytes / record_bytes_)),
        mask_(layout.Masks<W>()[layout.max_n]) {
    for (const NgramRun& run : runs) {
      if (run.records > 0) readers_.push_back({run, {}, 0, 0});
    }
  }

  // Reads the next key and its count and returns true; false at the end.
  absl::StatusOr<bool> Next(NgramKey<W>& key, uint64_t& count) {
    if (!started_) FORETOKEN_RETURN_IF_ERROR(Start());
    if (heap_.empty()) return false;
    key = heap_[0].key;
    count = 0;
    while (!heap_.empty() && heap_[0].key == key) {
      count += heap_[0].count;
      FORETOKEN_RETURN_IF_ERROR(AdvanceTop());
    }
    return true;
  }

 private:
  struct Reader {
    NgramRun left;                // the part that is not buffered yet
    std::vector<uint8_t> buffer;  // records read ahead
    size_t at;                    // offset of the next record in the buffer
    size_t end;
  };
  struct Head {
    NgramKey<W> key;
    uint32_t count;
    uint32_t reader;
  };

  absl::Status Start() {
    started_ = true;
    for (uint32_t r = 0; r < readers_.size(); ++r) {
      Head head;
      head.reader = r;
      FORETOKEN_ASSIGN_OR_RETURN(const bool more, ReadHead(head));
      if (more) heap_.push_back(head);
    }
    std::make_heap(heap_.begin(), heap_.end(),
                   [](const Head& a, const Head& b) { return a.key > b.key; });
    return absl::OkStatus();
  }

  absl::StatusOr<bool> ReadHead(Head& head) {
    Reader& reader = readers_[head.reader];
    if (reader.at == reader.end) {
      const size_t records = static_cast<size_t>(
          std::min<uint64_t>(buffer_records_, reader.left.records));
      if (records == 0) {
        reader.buffer = {};
        return false;
      }
      reader.at = 0;
      reader.end = records * record_bytes_;
      reader.buffer.resize(reader.end + 8 * W);  // keys are loaded as words
      FORETOKEN_RETURN_IF_ERROR(
          file_.Read(reader.left.offset, reader.buffer.data(), reader.end));
      reader.left.offset += reader.end;
      reader.left.records -= records;
    }
    // Loading whole words reads past the key; the mask removes the excess.
    const uint8_t* at = reader.buffer.data() + reader.at;
    head.key = NgramKey<W>::Load(at) & mask_;
    std::memcpy(&head.count, at + layout_.key_bytes(), kRunCountBytes);
    reader.at += record_bytes_;
    return true;
  }

  // Replaces the top with the next record of its run and restores the heap.
  absl::Status AdvanceTop() {
    Head head = heap_[0];
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, ReadHead(head));
    if (!more) {
      head = heap_.back();
      heap_.pop_back();
      if (heap_.empty()) return absl::OkStatus();
    }
    size_t hole = 0;
    for (size_t child = 1; child < heap_.size(); child = 2 * hole + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1].key < heap_[child].key) {
        ++child;
      }
      if (!(heap_[child].key < head.key)) break;
      heap_[hole] = heap_[child];
      hole = child;
    }
    heap_[hole] = head;
    return absl::OkStatus();
  }

  const SpillFile& file_;
  const KeyLayout layout_;
  const size_t record_bytes_;
  const size_t buffer_records_;
  const NgramKey<W> mask_;
  std::vector<Reader> readers_;
  std::vector<Head> heap_;  // smallest key on top
  bool started_ = false;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_RUN_MERGER_H_
