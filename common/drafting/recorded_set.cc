#include "common/drafting/recorded_set.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/drafting/json_rows.h"

namespace foretoken {
namespace {

// End-of-turn mark of the chat template in prompts; always the end token.
constexpr absl::string_view kEndMark = "</s>";

// Appends the ids of `text` after checking that they decode back to it.
absl::Status EncodeChecked(const Tokenizer& tokenizer, absl::string_view text,
                           const char* field, std::vector<TokenId>& ids) {
  const std::vector<TokenId> encoded = tokenizer.Encode(text);
  FORETOKEN_ASSIGN_OR_RETURN(const std::string back, tokenizer.Decode(encoded));
  if (absl::string_view(back) != text) {
    size_t at = 0;
    while (at < back.size() && at < text.size() && back[at] == text[at]) ++at;
    return absl::InvalidArgumentError(absl::StrCat(
        "field \"", field, "\": the tokenizer's ids do not decode to the text ",
        "from byte ", at, " on (", text.size(), " bytes in, ", back.size(),
        " bytes out); want the tokenizer of this set"));
  }
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  return absl::OkStatus();
}

absl::Status EncodePrompt(const Tokenizer& tokenizer, absl::string_view text,
                          std::vector<TokenId>& ids) {
  if (tokenizer.bos_token() >= 0) ids.push_back(tokenizer.bos_token());
  // For tokenizers that spell the end token differently, the mark is plain
  // text.
  const bool literal_end =
      tokenizer.vocabulary().content(tokenizer.eos_token()) == kEndMark;
  while (true) {
    const size_t mark =
        literal_end ? text.find(kEndMark) : absl::string_view::npos;
    FORETOKEN_RETURN_IF_ERROR(EncodeChecked(tokenizer, text.substr(0, mark),
                                            "prompt_text_full", ids));
    if (mark == absl::string_view::npos) return absl::OkStatus();
    ids.push_back(tokenizer.eos_token());
    text.remove_prefix(mark + kEndMark.size());
  }
}

absl::Status ReadTurn(const Json& json, const Tokenizer& tokenizer,
                      RecordedTurn& turn) {
  if (!json.is_object()) return absl::InvalidArgumentError("want an object");
  FORETOKEN_ASSIGN_OR_RETURN(const std::string prompt,
                             StringField(json, "prompt_text_full"));
  FORETOKEN_ASSIGN_OR_RETURN(const std::string output,
                             StringField(json, "output_text"));
  FORETOKEN_ASSIGN_OR_RETURN(const std::string finish,
                             StringField(json, "finish", "eos"));
  if (finish != "eos" && finish != "length") {
    return WrongField(
        "finish", absl::StrCat("\"eos\" or \"length\", have \"", finish, "\""));
  }
  turn.hit_length_limit = finish == "length";
  FORETOKEN_RETURN_IF_ERROR(EncodePrompt(tokenizer, prompt, turn.prompt));
  FORETOKEN_RETURN_IF_ERROR(
      EncodeChecked(tokenizer, output, "output_text", turn.output));
  if (!turn.hit_length_limit && tokenizer.eos_token() >= 0) {
    turn.output.push_back(tokenizer.eos_token());
  }
  if (turn.output.empty())
    return WrongField("output_text", "at least one token");
  return absl::OkStatus();
}

// Category of a row: `task` if present, else `category`.
absl::StatusOr<std::string> Category(const Json& row) {
  if (row.contains("task")) return StringField(row, "task");
  return StringField(row, "category", "all");
}

absl::Status ReadRow(const Json& row, const Tokenizer& tokenizer,
                     RecordedSet& set, int64_t& tokens) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::string id, StringField(row, "id"));
  FORETOKEN_ASSIGN_OR_RETURN(const std::string category, Category(row));
  const auto turns = row.find("turns");
  if (turns == row.end() || !turns->is_array() || turns->empty()) {
    return WrongField("turns", "a list of at least one turn");
  }
  for (size_t i = 0; i < turns->size(); ++i) {
    RecordedTurn turn{id, category, {}, {}, false};
    FORETOKEN_RETURN_IF_ERROR(Annotate(ReadTurn((*turns)[i], tokenizer, turn),
                                       absl::StrCat("turn ", i)));
    tokens += static_cast<int64_t>(turn.prompt.size() + turn.output.size());
    if (tokens > kMaxRecordedTokens) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the set has more than ", kMaxRecordedTokens,
                       " tokens; replay it in parts"));
    }
    set.turns.push_back(std::move(turn));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t RecordedSet::prompt_tokens() const {
  int64_t sum = 0;
  for (const RecordedTurn& turn : turns) sum += turn.prompt.size();
  return sum;
}

int64_t RecordedSet::output_tokens() const {
  int64_t sum = 0;
  for (const RecordedTurn& turn : turns) sum += turn.output.size();
  return sum;
}

absl::StatusOr<RecordedSet> ReadRecordedSet(const std::string& path,
                                            const Tokenizer& tokenizer) {
  RecordedSet set;
  set.file = path;
  int64_t tokens = 0;
  FORETOKEN_RETURN_IF_ERROR(ForEachJsonRow(path, [&](const Json& row) {
    return ReadRow(row, tokenizer, set, tokens);
  }));
  if (set.turns.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no recorded turns"));
  }
  return set;
}

}  // namespace foretoken
