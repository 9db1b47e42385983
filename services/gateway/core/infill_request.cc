#include "services/gateway/core/infill_request.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/sampling/sampling_params.h"
#include "common/text/fim_tokens.h"
#include "common/text/prompt_span.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/constraint_fields.h"
#include "services/gateway/core/generation_fields.h"
#include "services/gateway/core/message_blocks.h"
#include "services/gateway/core/request_fields.h"

namespace foretoken::gateway {
namespace {

constexpr size_t kAnyBytes = std::numeric_limits<size_t>::max();
// llama.cpp's names where a request has none.
constexpr char kRepository[] = "myproject\n";
constexpr char kExtraFile[] = "tmp";
constexpr char kThisFile[] = "filename\n";
// Before each extra file of a model without a token for that.
constexpr char kSnippet[] = "\n\n--- snippet ---\n\n";

std::string RequiredText(RequestFields& fields, absl::string_view field) {
  std::optional<std::string> text = fields.Text(field, kAnyBytes);
  if (!text.has_value()) {
    fields.Fail(FieldError(fields.Name(field), "is required",
                           "missing_required_parameter"));
  }
  return std::move(text).value_or("");
}

// [{"filename": "a.py", "text": "..."}]
void ReadExtra(RequestFields& fields, InfillInput& input) {
  constexpr char kField[] = "input_extra";
  const Json* const value = fields.Find(kField);
  if (value == nullptr) return;
  if (!value->is_array() || value->size() > kMaxExtraFiles) {
    fields.Fail(FieldError(
        kField,
        absl::StrCat("want an array of at most ", kMaxExtraFiles, " files"),
        "invalid_type"));
    return;
  }
  for (size_t i = 0; i < value->size(); ++i) {
    RequestFields file((*value)[i], absl::StrCat(kField, "[", i, "]"));
    InfillInput::File& added = input.extra.emplace_back();
    added.name = file.Text("filename", kAnyBytes).value_or(kExtraFile);
    added.text = RequiredText(file, "text");
    // When an editor read it.
    file.Find("time");
    fields.Fail(file.Finish());
  }
}

// llama.cpp's defaults, once the common fields have been read.
void SetDefaults(RequestFields& fields, SamplingParams& sampling) {
  if (fields.Find("temperature") == nullptr) sampling.temperature = 0.8f;
  if (fields.Find("top_k") == nullptr) sampling.top_k = 40;
  if (fields.Find("top_p") == nullptr) sampling.top_p = 0.95f;
  if (fields.Find("min_p") == nullptr) sampling.min_p = 0.05f;
}

// 0 only fills a cache: its one token is not shown.
void ReadLimit(RequestFields& fields, ApiRequest& request) {
  constexpr char kField[] = "max_tokens";
  const Json* const value = fields.Find(kField);
  request.prompt_only = value != nullptr && *value == 0;
  request.max_tokens = request.prompt_only ? 1 : ReadTokenLimit(fields, kField);
}

void AppendText(const Tokenizer& tokenizer, absl::string_view text,
                bool from_request, std::vector<TokenId>& ids) {
  if (text.empty()) return;
  const PromptSpan span = {std::string(text), !from_request};
  const std::vector<TokenId> encoded = tokenizer.EncodeSpans({&span, 1});
  ids.insert(ids.end(), encoded.begin(), encoded.end());
}

void AppendExtra(const Tokenizer& tokenizer, const InfillInput& input,
                 std::vector<TokenId>& ids) {
  const FimTokens& tokens = tokenizer.fim_tokens();
  if (tokens.repository >= 0) {
    ids.push_back(tokens.repository);
    AppendText(tokenizer, kRepository, /*from_request=*/false, ids);
  }
  for (const InfillInput::File& file : input.extra) {
    if (tokens.file >= 0) {
      ids.push_back(tokens.file);
      AppendText(tokenizer, absl::StrCat(file.name, "\n"),
                 /*from_request=*/true, ids);
    } else {
      AppendText(tokenizer, kSnippet, /*from_request=*/false, ids);
    }
    AppendText(tokenizer, file.text, /*from_request=*/true, ids);
  }
  if (tokens.file >= 0) {
    ids.push_back(tokens.file);
    AppendText(tokenizer, kThisFile, /*from_request=*/false, ids);
  }
}

}  // namespace

size_t InfillInput::bytes() const {
  size_t bytes = prefix.size() + suffix.size();
  for (const File& file : extra) {
    bytes += sizeof(File) + file.name.size() + file.text.size();
  }
  return bytes;
}

absl::StatusOr<InfillRequest> ReadInfillRequest(absl::string_view text) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json body,
                             ParseJson(text, kRequestJsonLimits));
  RequestFields fields(body);
  InfillRequest read;
  ApiRequest& request = read.request;
  AllowOnly(fields, "stream_options", {}, "it left out: streams have usage");
  ReadGenerationFields(fields, request, kInfill);
  SetDefaults(fields, request.generation.sampling);
  ReadLimit(fields, request);
  ReadConstraintFields(text, fields, request);
  if (request.generation.stop_token_ids.size() >
      kMaxTokenListSize - kMaxFimEnds) {
    fields.Fail(FieldError(
        "stop_token_ids",
        absl::StrCat("want at most ", kMaxTokenListSize - kMaxFimEnds),
        "array_above_max_length"));
  }
  read.input.prefix = RequiredText(fields, "input_prefix");
  read.input.suffix = RequiredText(fields, "input_suffix");
  ReadExtra(fields, read.input);
  // The prompt is the written part of the middle: append it to the prefix.
  read.input.prefix += fields.Text("prompt", kAnyBytes).value_or("");
  FORETOKEN_RETURN_IF_ERROR(fields.Finish());
  return read;
}

absl::StatusOr<std::vector<TokenId>> EncodeInfill(const Tokenizer& tokenizer,
                                                  const InfillInput& input) {
  const FimTokens& tokens = tokenizer.fim_tokens();
  if (!tokens.complete()) {
    return WithCode(
        absl::UnimplementedError(
            "/infill: this model has no fill-in-the-middle tokens (prefix, "
            "suffix, middle), want /v1/completions"),
        "unsupported_endpoint");
  }
  // llama.cpp puts BOS after the other files; models saw it first in a text.
  std::vector<TokenId> ids = tokenizer.prompt_prefix();
  AppendExtra(tokenizer, input, ids);
  ids.push_back(tokens.prefix);
  AppendText(tokenizer, input.prefix, /*from_request=*/true, ids);
  ids.push_back(tokens.suffix);
  AppendText(tokenizer, input.suffix, /*from_request=*/true, ids);
  ids.push_back(tokens.middle);
  return ids;
}

}  // namespace foretoken::gateway
