// The pre_tokenizer of a tokenizer.json: cuts text into the pieces that BPE
// never merges across.
//
// Every step cuts the pieces of the step before it, and sees nothing but its
// own piece: a look-ahead at its end meets the end of the text.
//
// Thread-compatible: const methods may be called concurrently, each thread
// with a Scratch of its own.
#ifndef FORETOKEN_COMMON_TEXT_PRE_TOKENIZER_H_
#define FORETOKEN_COMMON_TEXT_PRE_TOKENIZER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"
#include "common/text/split_regex.h"

namespace foretoken {

class PreTokenizer {
 public:
  using Scratch = SplitRegex::Scratch;
  using Sink = absl::FunctionRef<void(absl::string_view piece)>;

  // `field`: the value of "pre_tokenizer". InvalidArgument names the part of
  // it that is not supported.
  static absl::StatusOr<PreTokenizer> Create(const Json& field);

  // Calls `sink` for every piece that is not empty, in order. `text` must be
  // valid UTF-8; `at_start`: it begins where the whole text does.
  void Split(absl::string_view text, bool at_start, Scratch& scratch,
             Sink sink) const;

  // True if pieces are to be read as bytes in the byte-level alphabet.
  bool byte_level() const { return byte_level_; }

 private:
  struct Step {
    enum class Prefix { kNever, kAlways, kAtStart };
    std::optional<SplitRegex> regex;
    bool keep_matches = true;
    bool keep_gaps = true;
    // Put in front of a piece that does not begin with it.
    std::string prefix;
    Prefix when = Prefix::kNever;
    // Metaspace: spaces become `prefix`, and each begins a piece.
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
