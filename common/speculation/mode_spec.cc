#include "common/speculation/mode_spec.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

constexpr size_t kShownLength = 64;  // of a bad value, in messages

std::string Quoted(absl::string_view text) {
  const bool cut = text.size() > kShownLength;
  return absl::StrCat("'", text.substr(0, kShownLength), cut ? "..." : "", "'");
}

bool IsName(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

absl::StatusOr<ModeSpec> ModeSpec::Parse(absl::string_view text) {
  if (text.size() > kMaxLength) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mode: ", text.size(), " bytes, want at most ", kMaxLength));
  }
  const size_t colon = text.find(':');
  std::vector<std::pair<std::string, std::string>> parameters;
  if (colon != absl::string_view::npos) {
    for (const absl::string_view part :
         absl::StrSplit(text.substr(colon + 1), ',')) {
      const size_t equals = part.find('=');
      if (equals == absl::string_view::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat("mode ", Quoted(text.substr(0, colon)), ": parameter ",
                         Quoted(part), ", want key=value"));
      }
      parameters.emplace_back(std::string(part.substr(0, equals)),
                              std::string(part.substr(equals + 1)));
    }
  }
  return Create(std::string(text.substr(0, colon)), std::move(parameters));
}

absl::StatusOr<ModeSpec> ModeSpec::Create(
    std::string name,
    std::vector<std::pair<std::string, std::string>> parameters) {
  if (!IsName(name) || name.size() > kShownLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("mode ", Quoted(name),
                     ": want a name of lower-case letters, digits and _"));
  }
  if (parameters.size() > kMaxParameters) {
    return absl::InvalidArgumentError(
        absl::StrCat("mode ", Quoted(name), ": ", parameters.size(),
                     " parameters, want at most ", kMaxParameters));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [key, value] = parameters[i];
    if (!IsName(key)) {
      return absl::InvalidArgumentError(
          absl::StrCat("mode ", Quoted(name), ": parameter ", Quoted(key),
                       ": want a key of lower-case letters, digits and _"));
    }
    if (value.empty() || value.size() > kMaxLength ||
        value.find(',') != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("mode ", Quoted(name), ": parameter ", Quoted(key),
                       " is ", Quoted(value), ", want a value without commas"));
    }
    for (size_t before = 0; before < i; ++before) {
      if (parameters[before].first == key) {
        return absl::InvalidArgumentError(
            absl::StrCat("mode ", Quoted(name), ": parameter ", Quoted(key),
                         " is given twice"));
      }
    }
  }
  ModeSpec spec;
  spec.name_ = std::move(name);
  spec.parameters_ = std::move(parameters);
  return spec;
}

std::string ModeSpec::ToString() const {
  if (parameters_.empty()) return name_;
  return absl::StrCat(
      name_, ":", absl::StrJoin(parameters_, ",", absl::PairFormatter("=")));
}

const std::string* ModeReader::Find(absl::string_view key) {
  asked_.emplace_back(key);
  for (const auto& [name, value] : spec_.parameters()) {
    if (name == key) return &value;
  }
  return nullptr;
}

void ModeReader::Fail(absl::string_view key, const std::string& value,
                      const std::string& want) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(
      absl::StrCat("mode '", spec_.name(), "': parameter '", key, "' is ",
                   Quoted(value), ", want ", want));
}

int64_t ModeReader::Int(absl::string_view key, int64_t default_value,
                        int64_t min, int64_t max) {
  const std::string* text = Find(key);
  if (text == nullptr) return default_value;
  int64_t value = 0;
  if (absl::SimpleAtoi(*text, &value) && value >= min && value <= max) {
    return value;
  }
  Fail(key, *text, absl::StrCat("a whole number ", min, "..", max));
  return default_value;
}

double ModeReader::Double(absl::string_view key, double default_value,
                          double min, double max) {
  const std::string* text = Find(key);
  if (text == nullptr) return default_value;
  double value = 0;
  if (absl::SimpleAtod(*text, &value) && std::isfinite(value) && value >= min &&
      value <= max) {
    return value;
  }
  Fail(key, *text, absl::StrCat("a number ", min, "..", max));
  return default_value;
}

bool ModeReader::Bool(absl::string_view key, bool default_value) {
  const std::string* text = Find(key);
  if (text == nullptr) return default_value;
  if (*text == "1" || *text == "true") return true;
  if (*text == "0" || *text == "false") return false;
  Fail(key, *text, "0, 1, false or true");
  return default_value;
}

std::string ModeReader::String(absl::string_view key,
                               absl::string_view default_value) {
  const std::string* text = Find(key);
  return text == nullptr ? std::string(default_value) : *text;
}

int ModeReader::Choice(absl::string_view key,
                       std::initializer_list<absl::string_view> options) {
  const std::string* text = Find(key);
  if (text == nullptr) return 0;
  const auto found = std::find(options.begin(), options.end(), *text);
  if (found != options.end()) return static_cast<int>(found - options.begin());
  Fail(key, *text, absl::StrJoin(options, " or "));
  return 0;
}

absl::Status ModeReader::Finish() const {
  FORETOKEN_RETURN_IF_ERROR(status_);
  for (const auto& [key, value] : spec_.parameters()) {
    if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "mode '", spec_.name(), "' has no parameter ", Quoted(key),
        asked_.empty()
            ? std::string(": it takes none")
            : absl::StrCat(", want one of ", absl::StrJoin(asked_, " "))));
  }
  return absl::OkStatus();
}

}  // namespace foretoken
