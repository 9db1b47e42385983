// ModeSpec: a drafting mode and its parameters as written in a request or on a
// command line: `prompt_lookup:max_n=3,match=latest`.
//
//   MODE[:key=value[,key=value]...]
//
// Names and keys are lower-case letters, digits and underscores. Values end at
// a comma and are not empty. This is syntax alone: modes.h knows the modes and
// their parameters, and refuses a parameter that the mode does not read.
//
//   ModeReader read(spec);
//   options.max_n = read.Int("max_n", 3, 1, 16);
//   options.latest = read.Choice("match", {"first", "latest"}) == 1;
//   FORETOKEN_RETURN_IF_ERROR(read.Finish());
//
// Thread-compatible.
#ifndef FORETOKEN_COMMON_SPECULATION_MODE_SPEC_H_
#define FORETOKEN_COMMON_SPECULATION_MODE_SPEC_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken {

// The value of a parameter that is left to the drafter.
inline constexpr absl::string_view kAutoValue = "auto";

class ModeSpec {
 public:
  static constexpr size_t kMaxLength = 1024;  // of the text
  static constexpr size_t kMaxParameters = 32;

  // InvalidArgument names the invalid part of `text` and what was wanted.
  static absl::StatusOr<ModeSpec> Parse(absl::string_view text);

  // From separate name and parameters, with the same checks.
  static absl::StatusOr<ModeSpec> Create(
      std::string name,
      std::vector<std::pair<std::string, std::string>> parameters);

  const std::string& name() const { return name_; }
  // In the order given; keys are distinct.
  const std::vector<std::pair<std::string, std::string>>& parameters() const {
    return parameters_;
  }
  std::string ToString() const;  // Parse's inverse

 private:
  std::string name_;
  std::vector<std::pair<std::string, std::string>> parameters_;
};

// A parameter that a mode reads.
struct ModeParameter {
  enum class Type { kInt, kDouble, kBool, kText, kChoice };

  std::string key;
  Type type = Type::kText;
  std::string default_value;
  std::vector<std::string> choices;  // of kChoice, the default first
};

// Reads a spec's parameters with their types and ranges. Getters return the
// default for an absent key, and for a bad value, which Finish reports.
// Borrows the spec. Owned by one thread.
class ModeReader {
 public:
  explicit ModeReader(const ModeSpec& spec) : spec_(spec) {}

  int Int(absl::string_view key, int default_value, int min, int max);
  // Nothing for `auto`, the default: the drafter chooses the value.
  std::optional<int> IntOrAuto(absl::string_view key, int min, int max);
  double Double(absl::string_view key, double default_value, double min,
                double max);
  bool Bool(absl::string_view key, bool default_value);  // 0, 1, false, true
  std::string Text(absl::string_view key);               // empty if absent
  // The index of the value among `choices`; the first is the default.
  int Choice(absl::string_view key,
             std::initializer_list<absl::string_view> choices);

  const ModeSpec& spec() const { return spec_; }
  // The parameters that the getters asked for, in order.
  const std::vector<ModeParameter>& parameters() const { return asked_; }

  // InvalidArgument for the first bad value, or for the first key that no
  // getter asked for (the message lists the known ones).
  absl::Status Finish() const;

 private:
  // The value of the parameter's key, nullptr if absent. Records the parameter.
  const std::string* Find(ModeParameter parameter);
  void Fail(absl::string_view key, const std::string& value,
            const std::string& want);

  const ModeSpec& spec_;
  std::vector<ModeParameter> asked_;
  absl::Status status_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_MODE_SPEC_H_
