#include "tests/lab/model_replay/turn_log.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace foretoken::model_replay {
namespace {

Json TurnJson(size_t turn, absl::Span<const TurnResult> results) {
  const TurnResult& first = results.front();
  Json variants = Json::array();
  for (const TurnResult& result : results) {
    variants.push_back({{"tokens", result.tokens},
                        {"rounds", result.rounds},
                        {"nodes", result.nodes},
                        {"speculative", result.speculative},
                        {"indexing", result.indexing},
                        {"drafting", result.drafting},
                        {"verifying", result.verifying}});
  }
  return {{"turn", turn},
          {"id", first.id},
          {"category", first.category},
          {"length", first.length},
          {"tokens", first.plain_tokens},
          {"prefill", first.prefill},
          {"plain", first.plain},
          {"variants", std::move(variants)}};
}

// The inverse. Throws what Json throws for a field of another type.
std::vector<TurnResult> ResultsOf(const Json& turn) {
  std::vector<TurnResult> results;
  for (const Json& variant : turn.at("variants")) {
    TurnResult& result = results.emplace_back();
    turn.at("id").get_to(result.id);
    turn.at("category").get_to(result.category);
    turn.at("length").get_to(result.length);
    turn.at("tokens").get_to(result.plain_tokens);
    turn.at("prefill").get_to(result.prefill);
    turn.at("plain").get_to(result.plain);
    variant.at("tokens").get_to(result.tokens);
    variant.at("rounds").get_to(result.rounds);
    variant.at("nodes").get_to(result.nodes);
    variant.at("speculative").get_to(result.speculative);
    variant.at("indexing").get_to(result.indexing);
    variant.at("drafting").get_to(result.drafting);
    variant.at("verifying").get_to(result.verifying);
  }
  return results;
}

}  // namespace

absl::StatusOr<TurnLog> TurnLog::Open(std::string path, const Json& header,
                                      size_t variants) {
  TurnLog log(std::move(path), variants);
  log.text_ = absl::StrCat(DumpJson(header), "\n");
  if (log.path_.empty()) return log;
  const absl::StatusOr<std::string> text = ReadFile(log.path_);
  if (absl::IsNotFound(text.status())) return log;
  if (!text.ok()) return text.status();

  const std::vector<std::string> lines =
      absl::StrSplit(*text, '\n', absl::SkipEmpty());
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string place = absl::StrCat(log.path_, ":", i + 1);
    if (i > 0) {
      FORETOKEN_RETURN_IF_ERROR(Annotate(log.Read(lines[i]), place));
      continue;
    }
    FORETOKEN_ASSIGN_OR_RETURN(const Json found, ParseJson(lines[0]));
    if (found != header) {
      return absl::FailedPreconditionError(
          absl::StrCat(place, ": the turns are of another replay: ", lines[0],
                       ", want ", DumpJson(header)));
    }
  }
  return log;
}

absl::Status TurnLog::Read(const std::string& line) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json turn, ParseJson(line));
  try {
    std::vector<TurnResult> results = ResultsOf(turn);
    if (results.size() != variants_) {
      return absl::InvalidArgumentError(
          absl::StrCat(results.size(), " variants, want ", variants_));
    }
    turns_[turn.at("turn").get<size_t>()] = std::move(results);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
  absl::StrAppend(&text_, line, "\n");
  return absl::OkStatus();
}

absl::Status TurnLog::Add(size_t turn, absl::Span<const TurnResult> results) {
  turns_[turn] = {results.begin(), results.end()};
  if (path_.empty()) return absl::OkStatus();
  absl::StrAppend(&text_, DumpJson(TurnJson(turn, results)), "\n");
  return WriteFileAtomically(path_, text_);
}

}  // namespace foretoken::model_replay
