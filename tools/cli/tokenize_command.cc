// foretoken tokenize and detokenize: JSON lines in, JSON lines out.
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/tokenizer.h"
#include "tools/cli/command.h"

namespace foretoken::cli {
namespace {

using LineWork = std::function<absl::StatusOr<Json>(const Json& line)>;

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

absl::Status WriteLine(const Json& value) {
  const std::string line = DumpJson(value) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size()) {
    return absl::DataLossError("stdout: cannot write");
  }
  return absl::OkStatus();
}

// Writes the results of all lines before a bad one, which ends the command.
absl::Status ForEachLine(const LineWork& work) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader,
                             LineReader::Open("-"));
  std::string line;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, reader->Next(line));
    if (!more) break;
    absl::StatusOr<Json> value = ParseJson(line);
    if (value.ok()) value = work(*value);
    if (!value.ok()) {
      std::fflush(stdout);
      return Annotate(value.status(),
                      absl::StrCat("stdin line ", reader->line_number()));
    }
    FORETOKEN_RETURN_IF_ERROR(WriteLine(*value));
  }
  if (std::fflush(stdout) != 0) {
    return absl::DataLossError("stdout: cannot write");
  }
  return absl::OkStatus();
}

void AddLineCommand(CLI::App& app, Run& run, const char* name,
                    const char* description,
                    absl::StatusOr<Json> (*convert)(const Tokenizer&,
                                                    const Json&)) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(name, description);
  command
      ->add_option("--tokenizer", *path,
                   "model directory, GGUF file, tokenizer.json[.gz] or "
                   "tokenizer.model")
      ->required();
  command->callback([path, convert, &run] {
    run = [path, convert]() -> absl::Status {
      FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                                 Tokenizer::Load(*path));
      return ForEachLine(
          [&](const Json& line) { return convert(*tokenizer, line); });
    };
  });
}

}  // namespace

void AddTokenizeCommands(CLI::App& app, Run& run) {
  AddLineCommand(app, run, "tokenize",
                 "Reads {\"text\": ...} lines, writes {\"ids\": [...]} lines; "
                 "without BOS",
                 Tokenize);
  AddLineCommand(app, run, "detokenize",
                 "Reads {\"ids\": [...]} lines, writes {\"text\": ...} lines",
                 Detokenize);
}

}  // namespace foretoken::cli
