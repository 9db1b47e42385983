// The pre_tokenizer of a tokenizer.json: cuts text into pieces; BPE never
// merges across their borders.
//
// Every step cuts the pieces of the previous step and sees only its own piece:
// a look-ahead at the end of a piece sees the end of the text.
//
// Thread-compatible: const methods may be called concurrently, each thread with
// its own Scratch.
#ifndef FORETOKEN_COMMON_TEXT_PRE_TOKENIZER_H_
#define FORETOKEN_COMMON_TEXT_PRE_TOKENIZER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"
#include "common/text/split_regex.h"

namespace foretoken {

class PreTokenizer {
 public:
  using Scratch = SplitRegex::Scratch;
  using Sink = absl::FunctionRef<void(absl::string_view piece)>;

  // `field`: the value of "pre_tokenizer". InvalidArgument names the
  // unsupported part.
  static absl::StatusOr<PreTokenizer> Create(const Json& field);

  // Calls `sink` for every non-empty piece, in order. `text` must be valid
  // UTF-8; `at_start`: whether it begins at the start of the whole text.
  void Split(absl::string_view text, bool at_start, Scratch& scratch,
             Sink sink) const;

  // Whether pieces are read as bytes of the byte-level alphabet.
  bool byte_level() const { return byte_level_; }

 private:
  struct Step {
    enum class Prefix { kNever, kAlways, kAtStart };
    std::optional<SplitRegex> regex;
    bool keep_matches = true;
    bool keep_gaps = true;
    // Prepended to a piece that does not already begin with it.
    std::string prefix;
    Prefix when = Prefix::kNever;
    // Metaspace: spaces become `prefix`, and with `split_at_prefix` each of
    // them begins a new piece.
    bool metaspace = false;
    bool split_at_prefix = false;
  };

  absl::Status AddSteps(const Json& field, const std::string& where, int depth);
  absl::Status AddSplit(const Json& field, const std::string& where);
  absl::Status AddByteLevel(const Json& field, const std::string& where);
  absl::Status AddMetaspace(const Json& field, const std::string& where);
  void RunStep(size_t index, absl::string_view text, bool at_start,
               Scratch& scratch, Sink sink) const;
  void RunCuts(size_t index, absl::string_view text, bool at_start,
               Scratch& scratch, Sink sink) const;

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_PRE_TOKENIZER_H_
