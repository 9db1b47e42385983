// Recorded sets: what real models wrote, as token ids, for replay.
//
// A file holds one JSON object a line, gzip or plain: `id`, `task` or
// `category`, and `turns`, each with the whole prompt text of that turn
// (`prompt_text_full`), the answer (`output_text`) and, where known, why it
// ended (`finish`: "eos", the default, or "length").
//
// Every turn is one request. Its prompt is BOS + the encoded prompt text, where
// a literal "</s>" is the end token and each piece of text around it is encoded
// on its own; its output is the encoded answer and, unless it ran into its
// length limit, the end token.
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
  std::string id;        // of the row; the turns of one row share it
  std::string category;  // `task` where present, else `category`
  std::vector<TokenId> prompt;
  std::vector<TokenId> output;    // never empty; its first token is prefill's
  bool hit_length_limit = false;  // no end token; most such turns are loops
};

struct RecordedSet {
  std::string file;  // the path as given
  std::vector<RecordedTurn> turns;

  int64_t prompt_tokens() const;
  int64_t output_tokens() const;
};

// A set larger than this is refused rather than held in memory.
inline constexpr int64_t kMaxRecordedTokens = int64_t{1} << 28;

// Reads and encodes a whole set. Every error names file and line, and the turn
// and field where there is one: InvalidArgument for malformed JSON, missing or
// wrong fields, an empty output, and text that the tokenizer's ids do not give
// back (the wrong tokenizer for this set); ResourceExhausted for a set over
// kMaxRecordedTokens; NotFound for no such file.
absl::StatusOr<RecordedSet> ReadRecordedSet(const std::string& path,
                                            const Tokenizer& tokenizer);

// The `id` of every row, in file order; the same checks of form, no encoding.
absl::StatusOr<std::vector<std::string>> ReadRecordedIds(
    const std::string& path);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_RECORDED_SET_H_
