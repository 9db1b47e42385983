#include "common/text/text_normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"

namespace foretoken {
namespace {

// Limits on hostile files, far above real ones.
constexpr int kMaxDepth = 8;
constexpr size_t kMaxSteps = 64;
// Maximum length of what Prepend or Replace inserts; real files use 3 bytes.
constexpr size_t kMaxReplacementBytes = 16;
// Maximum product of the growth of all steps: NFKC (11) and U+2581 for a space
// (3), the most that real files need. A chain of steps that each double a text
// would exhaust any memory.
constexpr double kMaxGrowth = 33;

// Unicode's normal forms, by their names in a tokenizer.json. `growth`: the
// most bytes of UTF-8 that a form makes of one (Unicode's FAQ on
// normalization, "maximum expansion factors").
constexpr struct {
  absl::string_view name;
  const icu::Normalizer2* (*get)(UErrorCode& error);
  double growth;
} kForms[] = {{"NFC", icu::Normalizer2::getNFCInstance, 3},
              {"NFD", icu::Normalizer2::getNFDInstance, 3},
              {"NFKC", icu::Normalizer2::getNFKCInstance, 11},
              {"NFKD", icu::Normalizer2::getNFKDInstance, 11}};

std::string ToForm(size_t form, absl::string_view text) {
  std::string normal;
  icu::StringByteSink<std::string> sink(&normal);
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = kForms[form].get(error);
  // The data of these forms is built into the library.
  FORETOKEN_CHECK(U_SUCCESS(error) && normalizer != nullptr);
  normalizer->normalizeUTF8(
      0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink,
      nullptr, error);
  FORETOKEN_CHECK(U_SUCCESS(error));
  return normal;
}

bool IsAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x80;
  });
}

}  // namespace

absl::StatusOr<TextNormalizer> TextNormalizer::Create(const Json& field) {
  TextNormalizer result;
  FORETOKEN_RETURN_IF_ERROR(result.AddSteps(field, "normalizer", 0));
  double growth = 1;
  for (const Step& step : result.steps_) growth *= Growth(step);
  if (growth > kMaxGrowth) {
    return absl::InvalidArgumentError(
        absl::StrCat("normalizer: its steps make a text up to ", growth,
                     " times as long, want at most ", kMaxGrowth));
  }
  return result;
}

double TextNormalizer::Growth(const Step& step) {
  switch (step.kind) {
    case Step::kPrepend:
      return 1;  // a few bytes, once
    case Step::kReplace:
      return std::max(1.0, static_cast<double>(step.to.size()) /
                               static_cast<double>(step.from.size()));
    case Step::kForm:
      break;
  }
  return kForms[step.form].growth;
}

absl::Status TextNormalizer::AddSteps(const Json& field,
                                      const std::string& where, int depth) {
  if (field.is_null()) return absl::OkStatus();
  FORETOKEN_ASSIGN_OR_RETURN(const std::string type,
                             StringMember(field, where, "type"));
  if (depth > kMaxDepth || steps_.size() >= kMaxSteps) {
    return BadField(where, type, "fewer normalizers");
  }
  if (type == "Sequence") {
    FORETOKEN_ASSIGN_OR_RETURN(const Json parts,
                               Member(field, where, "normalizers"));
    const std::string inner = absl::StrCat(where, ".normalizers");
    if (!parts.is_array()) return BadField(inner, parts, "a list");
    for (size_t i = 0; i < parts.size(); ++i) {
      FORETOKEN_RETURN_IF_ERROR(
          AddSteps(parts[i], absl::StrCat(inner, "[", i, "]"), depth + 1));
    }
    return absl::OkStatus();
  }
  Step step;
  while (step.form < std::size(kForms) && kForms[step.form].name != type) {
    ++step.form;
  }
  if (step.form < std::size(kForms)) {
    step.kind = Step::kForm;
  } else if (type == "Prepend") {
    step.kind = Step::kPrepend;
    FORETOKEN_ASSIGN_OR_RETURN(step.to, StringMember(field, where, "prepend"));
  } else if (type == "Replace") {
    step.kind = Step::kReplace;
    FORETOKEN_ASSIGN_OR_RETURN(const Json pattern,
                               Member(field, where, "pattern"));
    FORETOKEN_ASSIGN_OR_RETURN(
        step.from,
        StringMember(pattern, absl::StrCat(where, ".pattern"), "String"));
    FORETOKEN_ASSIGN_OR_RETURN(step.to, StringMember(field, where, "content"));
    if (step.from.empty()) {
      return BadField(absl::StrCat(where, ".pattern.String"), step.from,
                      "a string that is not empty");
    }
  } else {
    return BadField(absl::StrCat(where, ".type"), type,
                    "NFC, NFD, NFKC, NFKD, Prepend, Replace or Sequence; "
                    "others are not supported");
  }
  if (step.to.size() > kMaxReplacementBytes) {
    return BadField(where, step.to,
                    absl::StrCat("at most ", kMaxReplacementBytes, " bytes"));
  }
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

std::string TextNormalizer::Normalize(absl::string_view text) const {
  std::string current(text);
  for (const Step& step : steps_) {
    // The library leaves an empty text empty, also by Prepend.
    if (current.empty()) break;
    if (step.kind == Step::kPrepend) {
      current.insert(0, step.to);
    } else if (step.kind == Step::kReplace) {
      current = absl::StrReplaceAll(current, {{step.from, step.to}});
    } else if (!IsAscii(current)) {  // ASCII is unchanged by every form
      current = ToForm(step.form, current);
    }
  }
  return current;
}

}  // namespace foretoken
