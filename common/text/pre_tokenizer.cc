#include "common/text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"

namespace foretoken {
namespace {

// Limits on hostile files, far above real ones.
constexpr int kMaxDepth = 8;
constexpr size_t kMaxSteps = 64;
constexpr size_t kMaxReplacementBytes = 4;  // one character

// Source: openai/gpt-2, encoder.py. ByteLevel splits by it if use_regex is set.
constexpr char kGpt2Pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
    "|\\s+(?!\\S)|\\s+";

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Create(const Json& field) {
  PreTokenizer result;
  FORETOKEN_RETURN_IF_ERROR(result.AddSteps(field, "pre_tokenizer", 0));
  return result;
}

absl::Status PreTokenizer::AddSteps(const Json& field, const std::string& where,
                                    int depth) {
  if (field.is_null()) return absl::OkStatus();
  FORETOKEN_ASSIGN_OR_RETURN(const std::string type,
                             StringMember(field, where, "type"));
  if (depth > kMaxDepth || steps_.size() >= kMaxSteps) {
    return BadField(where, type, "fewer pre-tokenizers");
  }
  // ByteLevel turns characters into bytes, which no later step could match.
  if (byte_level_) {
    return BadField(absl::StrCat(where, ".type"), type,
                    "nothing after ByteLevel");
  }
  if (type == "Split") return AddSplit(field, where);
  if (type == "ByteLevel") return AddByteLevel(field, where);
  if (type == "Metaspace") return AddMetaspace(field, where);
  if (type == "Digits") {
    // The library isolates digits: single ones, or each run of them.
    FORETOKEN_ASSIGN_OR_RETURN(
        const bool individual,
        BoolMember(field, where, "individual_digits", false));
    FORETOKEN_ASSIGN_OR_RETURN(
        SplitRegex regex,
        SplitRegex::Compile(individual ? "\\p{N}" : "\\p{N}+"));
    steps_.emplace_back();
    steps_.back().regex = std::move(regex);
    return absl::OkStatus();
  }
  if (type != "Sequence") {
    return BadField(absl::StrCat(where, ".type"), type,
                    "Split, ByteLevel, Digits, Metaspace or Sequence; others "
                    "are not supported");
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Json parts,
                             Member(field, where, "pretokenizers"));
  const std::string inner = absl::StrCat(where, ".pretokenizers");
  if (!parts.is_array()) return BadField(inner, parts, "a list");
  for (size_t i = 0; i < parts.size(); ++i) {
    FORETOKEN_RETURN_IF_ERROR(
        AddSteps(parts[i], absl::StrCat(inner, "[", i, "]"), depth + 1));
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddSplit(const Json& field,
                                    const std::string& where) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json pattern,
                             Member(field, where, "pattern"));
  const std::string inner = absl::StrCat(where, ".pattern");
  if (!pattern.is_object() || pattern.size() != 1) {
    return BadField(inner, pattern, "{\"Regex\": ...} or {\"String\": ...}");
  }
  const char* kind = pattern.contains("Regex") ? "Regex" : "String";
  FORETOKEN_ASSIGN_OR_RETURN(const std::string source,
                             StringMember(pattern, inner, kind));
  absl::StatusOr<SplitRegex> regex = pattern.contains("Regex")
                                         ? SplitRegex::Compile(source)
                                         : SplitRegex::CompileLiteral(source);
  if (!regex.ok()) {
    return Annotate(regex.status(), absl::StrCat(inner, ".", kind));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const std::string behavior,
                             StringMember(field, where, "behavior"));
  FORETOKEN_ASSIGN_OR_RETURN(const bool invert,
                             BoolMember(field, where, "invert", false));
  Step step;
  step.regex = *std::move(regex);
  // Removed drops the matches; inverted, it drops what lies between them.
  if (behavior == "Removed") {
    step.keep_matches = invert;
    step.keep_gaps = !invert;
  } else if (behavior != "Isolated") {
    return BadField(absl::StrCat(where, ".behavior"), behavior,
                    "Isolated or Removed; others are not supported");
  }
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddByteLevel(const Json& field,
                                        const std::string& where) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const bool add_prefix_space,
      BoolMember(field, where, "add_prefix_space", true));
  FORETOKEN_ASSIGN_OR_RETURN(const bool use_regex,
                             BoolMember(field, where, "use_regex", true));
  Step step;
  if (add_prefix_space) {
    step.prefix = " ";
    step.when = Step::Prefix::kAlways;
  }
  if (use_regex) {
    FORETOKEN_ASSIGN_OR_RETURN(step.regex, SplitRegex::Compile(kGpt2Pattern));
  }
  byte_level_ = true;
  // With neither, pieces are left as they are; the model maps the bytes.
  if (add_prefix_space || use_regex) steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddMetaspace(const Json& field,
                                        const std::string& where) {
  Step step;
  step.metaspace = true;
  FORETOKEN_ASSIGN_OR_RETURN(step.prefix,
                             StringMember(field, where, "replacement"));
  if (step.prefix.empty() || step.prefix.size() > kMaxReplacementBytes) {
    return BadField(absl::StrCat(where, ".replacement"), step.prefix,
                    "one character");
  }
  // Files from before prepend_scheme have add_prefix_space.
  FORETOKEN_ASSIGN_OR_RETURN(
      const bool add_prefix_space,
      BoolMember(field, where, "add_prefix_space", true));
  FORETOKEN_ASSIGN_OR_RETURN(const Json scheme,
                             Member(field, where, "prepend_scheme"));
  if (scheme == "always" || (scheme.is_null() && add_prefix_space)) {
    step.when = Step::Prefix::kAlways;
  } else if (scheme == "first") {
    step.when = Step::Prefix::kAtStart;
  } else if (scheme != "never" && !scheme.is_null()) {
    return BadField(absl::StrCat(where, ".prepend_scheme"), scheme,
                    "always, first or never");
  }
  FORETOKEN_ASSIGN_OR_RETURN(step.split_at_prefix,
                             BoolMember(field, where, "split", true));
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

void PreTokenizer::Split(absl::string_view text, bool at_start,
                         Scratch& scratch, Sink sink) const {
  RunStep(0, text, at_start, scratch, sink);
}

void PreTokenizer::RunStep(size_t index, absl::string_view text, bool at_start,
                           Scratch& scratch, Sink sink) const {
  if (text.empty()) return;
  if (index == steps_.size()) {
    sink(text);
    return;
  }
  const Step& step = steps_[index];
  // Changed text must outlive the steps below it, hence recursion and not a
  // list of pieces.
  std::string changed;
  if (step.metaspace) {
    changed = absl::StrReplaceAll(text, {{" ", step.prefix}});
    text = changed;
  }
  const bool wants_prefix = step.when == Step::Prefix::kAlways ||
                            (step.when == Step::Prefix::kAtStart && at_start);
  // No second prefix where the text begins with one, as in the library.
  if (wants_prefix && !absl::StartsWith(text, step.prefix)) {
    changed = absl::StrCat(step.prefix, text);
    text = changed;
  }
  RunCuts(index, text, at_start, scratch, sink);
}

void PreTokenizer::RunCuts(size_t index, absl::string_view text, bool at_start,
                           Scratch& scratch, Sink sink) const {
  const Step& step = steps_[index];
  const auto pass_on = [&](size_t begin, size_t end) {
    RunStep(index + 1, text.substr(begin, end - begin), at_start && begin == 0,
            scratch, sink);
  };
  // Cut before every prefix; in a piece that begins with one, search for the
  // next after it. at_start stays true only for the first piece.
  if (step.metaspace && step.split_at_prefix) {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end =
          std::min(text.find(step.prefix,
                             absl::StartsWith(text.substr(begin), step.prefix)
                                 ? begin + step.prefix.size()
                                 : begin),
                   text.size());
      pass_on(begin, end);
      begin = end;
    }
    return;
  }
  if (!step.regex.has_value()) return pass_on(0, text.size());
  for (size_t begin = 0; begin < text.size();) {
    const SplitRegex::Range match = step.regex->Find(text, begin, scratch);
    if (step.keep_gaps && match.begin > begin) pass_on(begin, match.begin);
    if (step.keep_matches && match.end > match.begin) {
      pass_on(match.begin, match.end);
    }
    // Without a match both ends are the end of the text; an empty match is
    // impossible (SplitRegex refuses such patterns).
    begin = match.end;
  }
}

}  // namespace foretoken
