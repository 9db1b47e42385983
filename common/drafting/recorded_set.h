// Recorded sets: outputs of real models as token ids, for replay.
//
// A file has one JSON object per line, gzip or plain: `id`, `task` or
// `category`, and `turns`. Each turn has its whole prompt text
// (`prompt_text_full`), the answer (`output_text`) and, where known, why it
// ended (`finish`: "eos", the default, or "length").
//
// Every turn is one request. Its prompt is BOS + the encoded prompt text, where
// a literal "</s>" is the end token and each piece of text around it is encoded
// separately. Its output is the encoded answer plus, unless it hit its length
// limit, the end token.
#ifndef FORETOKEN_COMMON_DRAFTING_RECORDED_SET_H_
#define FORETOKEN_COMMON_DRAFTING_RECORDED_SET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/text/tokenizer.h"

namespace foretoken {

struct RecordedTurn {
  std::string id;        // id of the row; its turns share it
  std::string category;  // `task` if present, else `category`
  std::vector<TokenId> prompt;
  std::vector<TokenId> output;    // never empty; the first token is prefill's
  bool hit_length_limit = false;  // no end token; most such turns are loops
};

struct RecordedSet {
  std::string file;  // the path as given
  std::vector<RecordedTurn> turns;

  int64_t prompt_tokens() const;
  int64_t output_tokens() const;
};

// Larger sets are refused rather than held in memory.
inline constexpr int64_t kMaxRecordedTokens = int64_t{1} << 28;

// Reads and encodes a whole set. Errors name file and line, and turn and field
// if there is one: InvalidArgument for malformed JSON, missing or wrong fields,
// an empty output, and text that the ids do not decode back to (the wrong
// tokenizer for this set); ResourceExhausted for a set over kMaxRecordedTokens;
// NotFound for a missing file.
absl::StatusOr<RecordedSet> ReadRecordedSet(const std::string& path,
                                            const Tokenizer& tokenizer);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_RECORDED_SET_H_
