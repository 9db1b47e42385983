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

// Bad values are cut before they are repeated: a message goes into logs and
// answers.
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
  // The text may come from a request; everything after this is linear or
  // quadratic in a small number.
  if (text.size() > kMaxLength) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mode: ", text.size(), " bytes, want at most ", kMaxLength));
  }
  // The first colon ends the name, so values may contain colons; only commas
  // are excluded, since they separate parameters.
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
    // Quadratic, in at most kMaxParameters.
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

const std::string* ModeReader::Find(ModeParameter parameter) {
  // Every reader asks in the same order, and each question is kept: the list of
  // what was asked is the list of what the mode knows, for help texts and for
  // Finish.
  asked_.push_back(std::move(parameter));
  for (const auto& [name, value] : spec_.parameters()) {
    if (name == asked_.back().key) return &value;
  }
  return nullptr;
}

void ModeReader::Fail(absl::string_view key, const std::string& value,
                      const std::string& want) {
  // The first bad value is reported; parsing goes on with defaults, so that
  // each reader stays a plain sequence of questions.
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(
      absl::StrCat("mode '", spec_.name(), "': parameter '", key, "' is ",
                   Quoted(value), ", want ", want));
}

int ModeReader::Int(absl::string_view key, int default_value, int min,
                    int max) {
  const std::string* text = Find({std::string(key),
                                  ModeParameter::Type::kInt,
                                  absl::StrCat(default_value),
                                  {}});
  if (text == nullptr) return default_value;
  int value = 0;
  if (absl::SimpleAtoi(*text, &value) && value >= min && value <= max) {
    return value;
  }
  Fail(key, *text, absl::StrCat("a whole number ", min, "..", max));
  return default_value;
}

std::optional<int> ModeReader::IntOrAuto(absl::string_view key, int min,
                                         int max) {
  const std::string* text = Find({std::string(key),
                                  ModeParameter::Type::kInt,
                                  std::string(kAutoValue),
                                  {}});
  if (text == nullptr || *text == kAutoValue) return std::nullopt;
  int value = 0;
  if (absl::SimpleAtoi(*text, &value) && value >= min && value <= max) {
    return value;
  }
  Fail(key, *text, absl::StrCat("auto or a whole number ", min, "..", max));
  return std::nullopt;
}

double ModeReader::Double(absl::string_view key, double default_value,
                          double min, double max) {
  // SimpleAtod accepts "nan" and "inf"; NaN would pass no comparison below and
  // still be stored.
  const std::string* text = Find({std::string(key),
                                  ModeParameter::Type::kDouble,
                                  absl::StrCat(default_value),
                                  {}});
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
  const std::string* text = Find({std::string(key),
                                  ModeParameter::Type::kBool,
                                  default_value ? "1" : "0",
                                  {}});
  if (text == nullptr) return default_value;
  if (*text == "1" || *text == "true") return true;
  if (*text == "0" || *text == "false") return false;
  Fail(key, *text, "0, 1, false or true");
  return default_value;
}

std::string ModeReader::Text(absl::string_view key) {
  const std::string* text =
      Find({std::string(key), ModeParameter::Type::kText, "", {}});
  return text == nullptr ? "" : *text;
}

int ModeReader::Choice(absl::string_view key,
                       std::initializer_list<absl::string_view> choices) {
  const std::string* text =
      Find({std::string(key), ModeParameter::Type::kChoice,
            std::string(*choices.begin()),
            std::vector<std::string>(choices.begin(), choices.end())});
  if (text == nullptr) return 0;
  const auto found = std::find(choices.begin(), choices.end(), *text);
  if (found != choices.end()) return static_cast<int>(found - choices.begin());
  Fail(key, *text, absl::StrJoin(choices, " or "));
  return 0;
}

absl::Status ModeReader::Finish() const {
  FORETOKEN_RETURN_IF_ERROR(status_);
  // After the reader has asked everything, so any parameter that it did not ask
  // for is unknown.
  const auto key_of = [](std::string* out, const ModeParameter& parameter) {
    absl::StrAppend(out, parameter.key);
  };
  for (const auto& given : spec_.parameters()) {
    if (std::any_of(asked_.begin(), asked_.end(), [&](const auto& parameter) {
          return parameter.key == given.first;
        })) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "mode '", spec_.name(), "' has no parameter ", Quoted(given.first),
        asked_.empty() ? std::string(": it takes none")
                       : absl::StrCat(", want one of ",
                                      absl::StrJoin(asked_, " ", key_of))));
  }
  return absl::OkStatus();
}

}  // namespace foretoken
