#include "services/gateway/core/json_text.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/text/utf8.h"

namespace foretoken::gateway {
namespace {

constexpr char kHex[] = "0123456789abcdef";

// Takes the pieces of a text: appends them.
struct Appender {
  std::string& out;
  void Add(absl::string_view piece) { out.append(piece.data(), piece.size()); }
};
// Takes the pieces of a text: counts their bytes.
struct Counter {
  size_t bytes = 0;
  void Add(absl::string_view piece) { bytes += piece.size(); }
};

template <typename Sink>
void AddEscaped(char c, Sink& sink) {
  switch (c) {
    case '"':
      return sink.Add("\\\"");
    case '\\':
      return sink.Add("\\\\");
    case '\n':
      return sink.Add("\\n");
    case '\r':
      return sink.Add("\\r");
    case '\t':
      return sink.Add("\\t");
    default: {
      const auto byte = static_cast<uint8_t>(c);
      const char escape[] = {'\\',           'u', '0', '0', kHex[byte >> 4],
                             kHex[byte & 15]};
      return sink.Add({escape, sizeof(escape)});
    }
  }
}

bool IsPlain(char c) {
  const auto byte = static_cast<uint8_t>(c);
  // DEL and all beyond take the slow way; most text is copied in long pieces.
  return byte >= 0x20 && byte < 0x7F && c != '"' && c != '\\';
}

template <typename Sink>
void AddJsonString(absl::string_view text, Sink& sink) {
  sink.Add("\"");
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && IsPlain(text[plain])) ++plain;
    sink.Add(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    if (static_cast<uint8_t>(text[0]) < 0x80) {
      AddEscaped(text[0], sink);
      text.remove_prefix(1);
      continue;
    }
    const Utf8Step step = NextUtf8(text);
    sink.Add(step.kind == Utf8Step::kCharacter ? text.substr(0, step.length)
                                               : kReplacementCharacter);
    // An incomplete character ends the text.
    text.remove_prefix(step.kind == Utf8Step::kIncomplete ? text.size()
                                                          : step.length);
  }
  sink.Add("\"");
}

}  // namespace

void AppendJsonString(absl::string_view text, std::string& out) {
  Appender appender{out};
  AddJsonString(text, appender);
}

std::string JsonString(absl::string_view text) {
  std::string out;
  AppendJsonString(text, out);
  return out;
}

size_t JsonStringBytes(absl::string_view text) {
  Counter counter;
  AddJsonString(text, counter);
  return counter.bytes;
}

void AppendJsonTokens(absl::Span<const TokenId> tokens, std::string& out) {
  out += '[';
  for (size_t i = 0; i < tokens.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ",", tokens[i]);
  }
  out += ']';
}

size_t JsonTokensBytes(absl::Span<const TokenId> tokens) {
  // Brackets, and a comma before every token but the first.
  size_t bytes = 2 + (tokens.empty() ? 0 : tokens.size() - 1);
  for (TokenId token : tokens) {
    // At least one digit: 0 has one. Tokens are never negative, so there is no
    // sign.
    do ++bytes;
    while ((token /= 10) != 0);
  }
  return bytes;
}

void AppendLogprob(float logprob, std::string& out) {
  if (!std::isfinite(logprob)) {
    out += "-9999.0";
    return;
  }
  absl::StrAppendFormat(&out, "%.9g", logprob);
}

void AppendFrame(absl::string_view data, std::string& out) {
  absl::StrAppend(&out, "data: ", data, "\n\n");
}

}  // namespace foretoken::gateway
