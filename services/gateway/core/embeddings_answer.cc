// Answers of /v1/embeddings.
#include <bit>
#include <charconv>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/embeddings_request.h"
#include "services/gateway/core/json_text.h"

namespace foretoken::gateway {
namespace {

// The shortest digits that read back as the same float. The room for the
// longest is taken at once: growing strings would double it.
void AppendNumbers(const std::vector<float>& numbers, std::string& out) {
  out.reserve(2 + numbers.size() * kEmbeddingFloatBytes);
  out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    char digits[32];
    const std::to_chars_result end =
        std::to_chars(digits, digits + sizeof(digits), numbers[i]);
    if (i > 0) out += ',';
    out.append(digits, end.ptr);
  }
  out += ']';
}

// Little-endian floats, as clients read them.
void AppendBase64(const std::vector<float>& numbers, std::string& out) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(numbers.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  const std::string text = absl::Base64Escape(bytes);
  out.reserve(2 + text.size());
  absl::StrAppend(&out, "\"", text, "\"");
}

class EmbeddingsAnswer final : public Answer {
 public:
  EmbeddingsAnswer(const ApiRequest& request, AnswerOptions options)
      : base64_(request.base64),
        model_(std::move(options.model)),
        embeddings_(static_cast<size_t>(request.choices())) {}

  void OnDelta(int64_t /*choice*/, const GenerationDelta& /*delta*/,
               std::string& /*out*/) override {}

  void OnResult(int64_t choice, const GenerationSummary& summary,
                std::string& /*out*/) override {
    std::string& json = embeddings_[static_cast<size_t>(choice)];
    if (base64_) {
      AppendBase64(summary.embedding, json);
    } else {
      AppendNumbers(summary.embedding, json);
      // It is kept until the last of the others comes.
      json.shrink_to_fit();
    }
    tokens_ += summary.prompt_tokens;
  }

  void Finish(const AnswerTimes& /*times*/, std::string& out) override {
    size_t bytes = 256 + model_.size();
    for (const std::string& json : embeddings_) bytes += json.size() + 64;
    out.reserve(bytes);
    out += "{\"object\":\"list\",\"data\":[";
    for (size_t i = 0; i < embeddings_.size(); ++i) {
      absl::StrAppend(&out, i == 0 ? "" : ",",
                      "{\"object\":\"embedding\",\"index\":", i,
                      ",\"embedding\":", embeddings_[i], "}");
    }
    // The body is copied once more on its way to the client.
    embeddings_ = {};
    out += "],\"model\":";
    AppendJsonString(model_, out);
    absl::StrAppend(&out, ",\"usage\":{\"prompt_tokens\":", tokens_,
                    ",\"total_tokens\":", tokens_, "}}");
  }

 private:
  const bool base64_;
  const std::string model_;
  std::vector<std::string> embeddings_;  // as JSON
  int64_t tokens_ = 0;
};

}  // namespace

std::unique_ptr<Answer> MakeEmbeddingsAnswer(const ApiRequest& request,
                                             AnswerOptions options) {
  return std::make_unique<EmbeddingsAnswer>(request, std::move(options));
}

}  // namespace foretoken::gateway
