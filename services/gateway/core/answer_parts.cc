#include "services/gateway/core/answer_parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "services/gateway/core/json_text.h"

namespace foretoken::gateway {
namespace {

void AddUp(const GenerationSummary& one, GenerationSummary& sum) {
  sum.rounds += one.rounds;
  sum.drafted += one.drafted;
  sum.accepted += one.accepted;
  sum.decoded_tokens += one.decoded_tokens;
  sum.draft_time += one.draft_time;
  sum.verify_time += one.verify_time;
  for (const DrafterCounts& counts : one.by_drafter) {
    // Drafters differ between choices, as auto chooses by what pays at the
    // moment.
    auto found =
        std::find_if(sum.by_drafter.begin(), sum.by_drafter.end(),
                     [&](const auto& each) { return each.id == counts.id; });
    if (found == sum.by_drafter.end()) {
      sum.by_drafter.push_back(counts);
      continue;
    }
    found->drafted += counts.drafted;
    found->accepted += counts.accepted;
    found->shortened += counts.shortened;
  }
}

void AppendRound(const RoundTree& round, const TokenTexts& texts,
                 std::string& out) {
  out += "{\"nodes\":[";
  const DraftTree& nodes = round.nodes;
  for (int32_t i = 0; i < nodes.size(); ++i) {
    // Built as text: a round has hundreds of nodes, and a tree of Json values
    // would cost several times its bytes.
    absl::StrAppend(&out, i == 0 ? "" : ",", "{\"id\":", nodes.tokens[i],
                    ",\"text\":");
    AppendJsonString(texts.Of(nodes.tokens[i]), out);
    absl::StrAppend(&out, ",\"parent\":", nodes.parents[i], ",\"drafter\":\"",
                    ShownDrafter(nodes.parts[i]), "\",\"probability\":");
    AppendLogprob(nodes.probs[i], out);
    absl::StrAppend(
        &out, ",\"accepted\":", round.accepted[i] ? "true" : "false", "}");
  }
  absl::StrAppend(&out, "],\"committed\":[",
                  absl::StrJoin(round.committed, ","), "]}");
}

}  // namespace

const char* FinishName(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop";
}

const char* FinishName(FinishReason reason, const ChatSplitter& output) {
  // Arguments that are not whole are of no use, whatever ended them.
  if (output.cut_off()) return FinishName(FinishReason::kLength);
  if (reason == FinishReason::kLength || output.calls() == 0) {
    return FinishName(reason);
  }
  return "tool_calls";
}

const char* ShownDrafter(DrafterId drafter) {
  return drafter == DrafterId::kTarget ? "target" : DrafterName(drafter);
}

void Results::Set(int64_t choice, const GenerationSummary& summary) {
  GenerationSummary& kept = summaries_[static_cast<size_t>(choice)];
  kept = summary;
  // A long prompt for every choice would otherwise be kept until the last one
  // ends.
  kept.prompt.clear();  // no answer shows it
  kept.prompt.shrink_to_fit();
}

Json Results::Usage() const {
  int64_t prompt = 0;
  int64_t cached = 0;
  int64_t completion = 0;
  for (size_t i = 0; i < summaries_.size(); ++i) {
    completion += summaries_[i].completion_tokens;
    // The choices of a prompt share it, so it counts once; choices are numbered
    // prompt by prompt.
    if (i % static_cast<size_t>(n_) != 0) continue;
    prompt += summaries_[i].prompt_tokens;
    cached += summaries_[i].reused_tokens;
  }
  Json usage = {{"prompt_tokens", prompt},
                {"completion_tokens", completion},
                {"total_tokens", prompt + completion},
                {"prompt_tokens_details", {{"cached_tokens", cached}}}};
  if (reasoning_tokens_.has_value()) {
    usage["completion_tokens_details"] = {
        {"reasoning_tokens", *reasoning_tokens_}};
  }
  return usage;
}

Json Results::Extension(const AnswerTimes& times) const {
  // With one choice its own times are exact, and there is no list of choices.
  if (summaries_.size() == 1) return ExtensionOf(summaries_.front());
  GenerationSummary sum = summaries_.front();
  Json choices = Json::array({ExtensionOf(sum)});
  for (size_t i = 1; i < summaries_.size(); ++i) {
    AddUp(summaries_[i], sum);
    choices.push_back(ExtensionOf(summaries_[i]));
  }
  // Some choices run at the same time, others after them: only the request
  // knows how long all took.
  sum.time_to_first_token = times.first_token;
  sum.decode_time = times.total - times.first_token;
  sum.total_time = times.total;
  Json extension = ExtensionOf(sum);
  extension["choices"] = std::move(choices);
  return extension;
}

void AppendStreamEnd(const ApiRequest& request, absl::string_view head,
                     const Results& results, std::string& out) {
  // Clients that ask for it expect the usage in a chunk with an empty list of
  // choices, before the end.
  if (request.include_usage) {
    absl::StrAppend(&out, "data: ", head,
                    "],\"usage\":", DumpJson(results.Usage()), "}\n\n");
  }
  absl::StrAppend(&out, kDoneFrame);
}

void Answer::Fail(const ApiError& error, std::string& out) {
  // The status of the response is sent already: the error comes as an event,
  // and the stream still ends as clients expect.
  AppendFrame(error.Json(), out);
  absl::StrAppend(&out, kDoneFrame);
}

Json ExtensionOf(const GenerationSummary& summary) {
  Json by_drafter = Json::array();
  for (const DrafterCounts& counts : summary.by_drafter) {
    by_drafter.push_back({{"drafter", ShownDrafter(counts.id)},
                          {"drafted_tokens", counts.drafted},
                          {"accepted_tokens", counts.accepted},
                          {"shortened_drafts", counts.shortened}});
  }
  return {
      {"mode", summary.mode},
      {"accept_length", summary.accept_length()},
      {"rounds", summary.rounds},
      {"drafted_tokens", summary.drafted},
      {"accepted_tokens", summary.accepted},
      {"by_drafter", std::move(by_drafter)},
      {"timings",
       {{"ttft_ms", absl::ToDoubleMilliseconds(summary.time_to_first_token)},
        {"decode_tokens_per_s", summary.tokens_per_second()},
        {"draft_ms", absl::ToDoubleMilliseconds(summary.draft_time)},
        {"verify_ms", absl::ToDoubleMilliseconds(summary.verify_time)},
        {"total_ms", absl::ToDoubleMilliseconds(summary.total_time)}}},
      {"seed", summary.seed}};
}

TokenPieces::TokenPieces(const Tokenizer* tokenizer) {
  if (tokenizer != nullptr) {
    detokenizer_.emplace(*tokenizer, Detokenizer::Start::kBehindPrompt);
  }
}

void TokenPieces::Append(const GenerationDelta& delta, std::string& out) {
  std::string text;
  for (size_t i = 0; i < delta.token_ids.size(); ++i) {
    // One string for all tokens keeps its memory.
    text.clear();
    // A model may have more rows than its tokenizer has tokens: no text.
    if (detokenizer_.has_value()) {
      detokenizer_->Push(delta.token_ids[i], text).IgnoreError();
    }
    absl::StrAppend(&out, i == 0 ? "" : ",", "{\"id\":", delta.token_ids[i],
                    ",\"text\":");
    AppendJsonString(text, out);
    // Deltas of an older server have no drafters.
    const DrafterId drafter =
        i < delta.drafters.size() ? delta.drafters[i] : DrafterId::kTarget;
    absl::StrAppend(&out, ",\"drafter\":\"", ShownDrafter(drafter), "\"}");
  }
}

bool AppendChunkExtension(const ApiRequest& request,
                          const GenerationDelta& delta, const TokenTexts& texts,
                          TokenPieces& pieces, std::string& out) {
  const bool tokens = request.want_tokens && !delta.token_ids.empty();
  const bool round = request.want_rounds && delta.round_tree.has_value();
  if (!tokens && !round) return false;
  out += '{';
  if (tokens) {
    out += "\"tokens\":[";
    pieces.Append(delta, out);
    out += ']';
  }
  if (round) {
    absl::StrAppend(&out, tokens ? "," : "", "\"rounds\":[");
    AppendRound(*delta.round_tree, texts, out);
    out += ']';
  }
  out += '}';
  return true;
}

}  // namespace foretoken::gateway
