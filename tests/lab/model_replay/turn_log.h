// TurnLog: what a replay has measured so far, turn by turn, in a file: a replay
// that was stopped goes on behind it, and scripts draw intervals from its
// turns.
//
// JSONL. The first line is the header, which tells what is measured; then for
// every turn {"turn","id","category","length","tokens","prefill","plain",
// "variants":[{"tokens","rounds","nodes","speculative","indexing","drafting",
// "verifying"}]}, times in seconds, variants in the header's order; the turn's
// tokens are those of plain decoding (TurnResult has the rest). Written whole
// after every turn, atomically.
//
// Owned by one thread.
#ifndef FORETOKEN_TESTS_LAB_MODEL_REPLAY_TURN_LOG_H_
#define FORETOKEN_TESTS_LAB_MODEL_REPLAY_TURN_LOG_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/json_fwd.h"
#include "tests/lab/model_replay/model_replayer.h"

namespace foretoken::model_replay {

class TurnLog {
 public:
  // Results by turn, one for each of the replay's sources.
  using Turns = std::map<size_t, std::vector<TurnResult>>;

  // Without a path, a log in memory alone. A file that is there must begin with
  // `header` (FailedPrecondition) and hold turns with `variants` results each;
  // InvalidArgument names the line that does not.
  static absl::StatusOr<TurnLog> Open(std::string path, const Json& header,
                                      size_t variants);

  const Turns& turns() const { return turns_; }

  // `turn`: its index in the recorded set.
  absl::Status Add(size_t turn, absl::Span<const TurnResult> results);

 private:
  TurnLog(std::string path, size_t variants)
      : path_(std::move(path)), variants_(variants) {}

  absl::Status Read(const std::string& line);

  std::string path_;
  size_t variants_;
  std::string text_;  // of the file
  Turns turns_;
};

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TESTS_LAB_MODEL_REPLAY_TURN_LOG_H_
