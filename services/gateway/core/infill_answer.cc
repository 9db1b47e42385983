// Answers of /infill.
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/answer_parts.h"
#include "services/gateway/core/json_text.h"
#include "services/gateway/core/token_texts.h"

namespace foretoken::gateway {
namespace {

// Both forms. A stream is the text in pieces and then the body without text.
class InfillAnswer final : public Answer {
 public:
  InfillAnswer(const ApiRequest& request, AnswerOptions options)
      : request_(request),
        options_(std::move(options)),
        prompt_tokens_(static_cast<int64_t>(
            std::get<std::vector<TokenId>>(request.prompts.front()).size())),
        texts_(options_.tokenizer),
        results_(request),
        pieces_(options_.tokenizer) {}

  void OnDelta(int64_t /*choice*/, const GenerationDelta& delta,
               std::string& out) override {
    if (request_.prompt_only) return;
    predicted_ += static_cast<int64_t>(delta.token_ids.size());
    if (!request_.stream) {
      text_ += delta.text;
      if (request_.want_tokens && !delta.token_ids.empty()) {
        if (!tokens_.empty()) tokens_ += ',';
        pieces_.Append(delta, tokens_);
      }
      return;
    }
    std::string extension;
    AppendChunkExtension(request_, delta, texts_, pieces_, extension);
    if (delta.text.empty() && delta.token_ids.empty() && extension.empty()) {
      return;
    }
    out += "data: ";
    AppendHead(delta.text, /*ends=*/false, predicted_, prompt_tokens_, out);
    out += ",\"tokens\":";
    AppendJsonTokens(delta.token_ids, out);
    if (!extension.empty()) {
      absl::StrAppend(&out, ",\"foretoken\":", extension);
    }
    out += "}\n\n";
  }

  void OnResult(int64_t choice, const GenerationSummary& summary,
                std::string& /*out*/) override {
    results_.Set(choice, summary);
  }

  void Finish(const AnswerTimes& times, std::string& out) override {
    if (request_.stream) out += "data: ";
    AppendEnd(times, out);
    if (request_.stream) out += "\n\n";
  }

  // llama.cpp's streams end without a mark.
  void Fail(const ApiError& error, std::string& out) override {
    AppendFrame(error.Json(), out);
  }

 private:
  // With the brace open.
  static void AppendHead(absl::string_view text, bool ends, int64_t predicted,
                         int64_t evaluated, std::string& out) {
    out += "{\"index\":0,\"content\":";
    AppendJsonString(text, out);
    absl::StrAppend(&out, ",\"stop\":", ends ? "true" : "false",
                    ",\"tokens_predicted\":", predicted,
                    ",\"tokens_evaluated\":", evaluated);
  }

  void AppendEnd(const AnswerTimes& times, std::string& out) const {
    const GenerationSummary& summary = results_.Of(0);
    AppendHead(text_, /*ends=*/true, summary.completion_tokens,
               summary.prompt_tokens, out);
    const char* type = summary.finish == FinishReason::kLength ? "limit"
                       : summary.stop_string.empty()           ? "eos"
                                                               : "word";
    out += ",\"model\":";
    AppendJsonString(options_.model, out);
    absl::StrAppend(&out, ",\"truncated\":false,\"stop_type\":\"", type,
                    "\",\"stopping_word\":");
    AppendJsonString(summary.stop_string, out);
    const Json timings = {
        {"cache_n", summary.reused_tokens},
        {"prompt_n", summary.prompt_tokens - summary.reused_tokens},
        {"prompt_ms", absl::ToDoubleMilliseconds(summary.time_to_first_token)},
        {"predicted_n", summary.completion_tokens},
        {"predicted_ms", absl::ToDoubleMilliseconds(summary.decode_time)},
        {"predicted_per_second", summary.tokens_per_second()}};
    std::string extension = DumpJson(results_.Extension(times));
    if (!tokens_.empty()) {
      extension = absl::StrCat(absl::StripSuffix(extension, "}"),
                               ",\"tokens\":[", tokens_, "]}");
    }
    absl::StrAppend(&out, ",\"tokens_cached\":", summary.reused_tokens,
                    ",\"timings\":", DumpJson(timings),
                    ",\"foretoken\":", extension, "}");
  }

  const ApiRequest& request_;
  const AnswerOptions options_;
  const int64_t prompt_tokens_;
  const TokenTexts texts_;
  Results results_;
  TokenPieces pieces_;
  int64_t predicted_ = 0;
  // Bodies only.
  std::string text_;
  std::string tokens_;  // as JSON
};

}  // namespace

std::unique_ptr<Answer> MakeInfillAnswer(const ApiRequest& request,
                                         AnswerOptions options) {
  return std::make_unique<InfillAnswer>(request, std::move(options));
}

}  // namespace foretoken::gateway
