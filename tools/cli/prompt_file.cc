#include "tools/cli/prompt_file.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/raw_member.h"
#include "common/base/status_macros.h"
#include "common/drafting/json_rows.h"

namespace foretoken::cli {
namespace {

constexpr char kText[] = "prompt";
constexpr char kIds[] = "prompt_ids";
constexpr char kMessages[] = "messages";
constexpr char kConstraint[] = "constraint";

absl::StatusOr<std::vector<TokenId>> ReadIds(const Json& ids) {
  const absl::Status wrong =
      WrongField(kIds, "a list of token ids with at least one");
  if (!ids.is_array() || ids.empty()) return wrong;
  std::vector<TokenId> result;
  result.reserve(ids.size());
  for (const Json& id : ids) {
    // Only non-negative whole numbers; 1.0 and 1e3 are refused, as ids of a
    // file are never written so.
    if (!id.is_number_unsigned() ||
        id.get<uint64_t>() > std::numeric_limits<TokenId>::max()) {
      return wrong;
    }
    result.push_back(id.get<TokenId>());
  }
  return result;
}

// `raw`: the value as its line spells it; the order of a schema's keys is that
// of the output's.
absl::StatusOr<Constraint> ReadConstraint(const Json& value,
                                          absl::string_view raw) {
  using Kind = Constraint::Kind;
  const absl::Status wrong = WrongField(
      kConstraint,
      "one of json_schema (an object), json_object (true), regex, grammar "
      "(texts) and choice (a list of texts)");
  if (!value.is_object() || value.size() != 1) return wrong;
  const std::string& name = value.begin().key();
  const Json& given = value.begin().value();
  Constraint constraint;
  if (name == "json_schema" && given.is_object()) {
    constraint.kind = Kind::kJsonSchema;
    // From the raw text, since parsing sorts the keys of an object.
    constraint.source = std::string(RawMember(raw, name));
  } else if (name == "json_object" && given == true) {
    constraint.kind = Kind::kJsonObject;
  } else if ((name == "regex" || name == "grammar") && given.is_string()) {
    constraint.kind = name == "regex" ? Kind::kRegex : Kind::kGrammar;
    constraint.source = given.get<std::string>();
  } else if (name == "choice" && given.is_array() && !given.empty()) {
    constraint.kind = Kind::kChoice;
    for (const Json& choice : given) {
      if (!choice.is_string()) return wrong;
      constraint.choices.push_back(choice.get<std::string>());
    }
  } else {
    return wrong;
  }
  return constraint;
}

absl::StatusOr<FilePrompt> ReadPrompt(const Json& row, const ChatFormat& chat) {
  int given = 0;
  for (const char* field : {kText, kIds, kMessages}) {
    given += row.contains(field) ? 1 : 0;
  }
  // More than one field would make it unclear which is sent.
  if (given != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", given,
                     " of the fields \"prompt\", \"prompt_ids\" and "
                     "\"messages\", want one"));
  }
  FilePrompt prompt;
  if (row.contains(kIds)) {
    FORETOKEN_ASSIGN_OR_RETURN(prompt.ids, ReadIds(row[kIds]));
    return prompt;
  }
  if (row.contains(kMessages)) {
    return chat.Render(row[kMessages]);
  }
  FORETOKEN_ASSIGN_OR_RETURN(prompt.text, StringField(row, kText));
  if (prompt.text->empty()) return WrongField(kText, "a text, have none");
  return prompt;
}

absl::StatusOr<FilePrompt> ReadRow(const Json& row, absl::string_view line,
                                   const ChatFormat& chat) {
  FORETOKEN_ASSIGN_OR_RETURN(FilePrompt prompt, ReadPrompt(row, chat));
  if (const auto constraint = row.find(kConstraint); constraint != row.end()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        prompt.constraint,
        ReadConstraint(*constraint, RawMember(line, kConstraint)));
  }
  return prompt;
}

}  // namespace

absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path,
                                                       const ChatFormat& chat) {
  std::vector<FilePrompt> prompts;
  uint64_t bytes = 0;
  FORETOKEN_RETURN_IF_ERROR(ForEachJsonLine(
      path, [&](const Json& row, const std::string& line) -> absl::Status {
        FORETOKEN_ASSIGN_OR_RETURN(FilePrompt prompt, ReadRow(row, line, chat));
        bytes += prompt.ids.size() * sizeof(TokenId) +
                 prompt.text.value_or("").size() + prompt.constraint.bytes();
        // Both bounds: many tiny rows cost memory of their own.
        if (prompts.size() == kMaxPrompts || bytes > kMaxPromptBytes) {
          return absl::ResourceExhaustedError(
              absl::StrCat("too much, want at most ", kMaxPrompts,
                           " prompts and ", kMaxPromptBytes, " bytes of them"));
        }
        prompts.push_back(std::move(prompt));
        return absl::OkStatus();
      }));
  if (prompts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no prompts"));
  }
  return prompts;
}

}  // namespace foretoken::cli
