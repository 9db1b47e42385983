#include "common/drafting/crest_build/run_merger.h"

namespace foretoken {

absl::StatusOr<uint64_t> RecordsBelow(const SpillFile& file,
                                      const KeyLayout& layout,
                                      const NgramRun& run, uint32_t bound) {
  // Binary search in the file: records are sorted by key, hence by first token.
  uint64_t low = 0;
  uint64_t high = run.records;
  while (low < high) {
    // Invariant: records before `low` are below the bound, those from `high` on
    // are not.
    const uint64_t middle = low + (high - low) / 2;
    uint8_t token[4];
    FORETOKEN_RETURN_IF_ERROR(
        file.Read(run.offset + middle * RunRecordBytes(layout), token,
                  layout.token_bytes));
    if (LoadToken(token, layout.token_bytes) < bound) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace foretoken
