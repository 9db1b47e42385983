// foretoken tokenize and detokenize: JSON lines in, JSON lines out.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/tokenizer.h"
#include "tools/cli/command.h"
#include "tools/cli/shared_options.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

// Turns one line into another.
using Conversion = absl::StatusOr<Json>(const Tokenizer&, const Json& line);

absl::StatusOr<Json> Tokenize(const Tokenizer& tokenizer, const Json& line) {
  if (!line.is_object() || !line.contains("text") ||
      !line.at("text").is_string()) {
    return absl::InvalidArgumentError(
        "want an object {\"text\": \"...\"} with a string");
  }
  return Json{
      {"ids", tokenizer.Encode(line.at("text").get_ref<const std::string&>())}};
}

absl::StatusOr<Json> Detokenize(const Tokenizer& tokenizer, const Json& line) {
  if (!line.is_object() || !line.contains("ids") ||
      !line.at("ids").is_array()) {
    return absl::InvalidArgumentError(
        "want an object {\"ids\": [...]} with a list of token ids");
  }
  std::vector<TokenId> ids;
  for (const Json& id : line.at("ids")) {
    // Checked here for a message with the position; Decode would name the id
    // alone.
    if (!id.is_number_integer() || id < 0 || id >= tokenizer.vocab_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("ids[", ids.size(), "]: ", DumpJson(id), ", want 0..",
                       tokenizer.vocab_size() - 1));
    }
    ids.push_back(id.get<TokenId>());
  }
  FORETOKEN_ASSIGN_OR_RETURN(const std::string text, tokenizer.Decode(ids));
  return Json{{"text", text}};
}

// Writes the results of all lines before a bad one, which ends the command.
absl::Status ConvertLines(const std::string& tokenizer_path,
                          Conversion* convert) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                             Tokenizer::Load(tokenizer_path));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader,
                             LineReader::Open("-"));
  std::string line;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, reader->Next(line));
    if (!more) return absl::OkStatus();
    absl::StatusOr<Json> value = ParseJson(line);
    if (value.ok()) value = convert(*tokenizer, *value);
    if (!value.ok()) {
      return Annotate(value.status(),
                      absl::StrCat("stdin line ", reader->line_number()));
    }
    // Line by line, so that the command works as a filter between two programs.
    FORETOKEN_RETURN_IF_ERROR(WriteJson(*value));
  }
}

void AddLineCommand(Command root, const char* name, const char* description,
                    Conversion* convert) {
  const auto [command, path] = root.AddCommand<std::string>(
      name, description, [convert](const std::string& tokenizer) {
        return ConvertLines(tokenizer, convert);
      });
  AddTokenizerOption(command, path);
}

}  // namespace

void AddTokenizeCommands(Command root) {
  AddLineCommand(root, "tokenize",
                 "Reads {\"text\": ...} lines, writes {\"ids\": [...]} lines; "
                 "without BOS",
                 Tokenize);
  AddLineCommand(root, "detokenize",
                 "Reads {\"ids\": [...]} lines, writes {\"text\": ...} lines",
                 Detokenize);
}

}  // namespace foretoken::cli
