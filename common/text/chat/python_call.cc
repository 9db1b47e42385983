#include "common/text/chat/python_call.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace foretoken {
namespace {

// Llama 3.1's built-in tools are called in Python's syntax,
// brave_search.call(query="..."); any other code after the Python tag is for
// the code interpreter.
constexpr absl::string_view kCall = ".call(";
constexpr absl::string_view kInterpreter = "code_interpreter";

size_t NameSize(absl::string_view text) {
  const auto is_name_byte = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  return std::find_if_not(text.begin(), text.end(), is_name_byte) -
         text.begin();
}

void AppendEscaped(absl::string_view text, std::string& out) {
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      out.push_back(c);
    }
  }
}

// Reads a string literal of Python, removes it from `text` and appends it as
// JSON. False: it does not end.
bool ReadString(absl::string_view& text, std::string& json) {
  const char quote = text.front();
  std::string value;
  size_t i = 1;
  for (; i < text.size() && text[i] != quote; ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      value.push_back(text[i]);
      continue;
    }
    const char c = text[++i];
    value.push_back(c == 'n' ? '\n' : c == 't' ? '\t' : c);
  }
  if (i == text.size()) return false;
  text.remove_prefix(i + 1);
  json.push_back('"');
  AppendEscaped(value, json);
  json.push_back('"');
  return true;
}

// The same for a number, True, False or None. Numbers are copied as written;
// Python's and JSON's agree but for rare forms.
bool ReadScalar(absl::string_view& text, std::string& json) {
  for (const auto& [python, value] :
       {std::pair("True", "true"), std::pair("False", "false"),
        std::pair("None", "null")}) {
    if (absl::ConsumePrefix(&text, python)) {
      json += value;
      return true;
    }
  }
  const size_t size =
      std::min(text.find_first_not_of("0123456789+-.eE"), text.size());
  absl::StrAppend(&json, text.substr(0, size));
  text.remove_prefix(size);
  return size > 0;
}

// Converts `key=value, ...)` to a JSON object; nullopt for anything else, which
// is then treated as code.
std::optional<std::string> ParseArguments(absl::string_view text) {
  std::string json = "{";
  text = absl::StripAsciiWhitespace(text);
  while (!absl::ConsumePrefix(&text, ")")) {
    if (json.size() > 1) {
      if (!absl::ConsumePrefix(&text, ",")) return std::nullopt;
      text = absl::StripLeadingAsciiWhitespace(text);
      json += ", ";
    }
    const size_t size = NameSize(text);
    if (size == 0) return std::nullopt;
    absl::StrAppend(&json, "\"", text.substr(0, size), "\": ");
    text = absl::StripLeadingAsciiWhitespace(text.substr(size));
    if (!absl::ConsumePrefix(&text, "=")) return std::nullopt;
    text = absl::StripLeadingAsciiWhitespace(text);
    if (text.empty()) return std::nullopt;
    const bool is_string = text.front() == '"' || text.front() == '\'';
    if (!(is_string ? ReadString(text, json) : ReadScalar(text, json))) {
      return std::nullopt;
    }
    text = absl::StripLeadingAsciiWhitespace(text);
  }
  if (!text.empty()) return std::nullopt;
  return json + "}";
}

}  // namespace

// True while the text so far is a prefix of NAME.call( or has it: then nothing
// can be sent yet.
bool PythonCall::MayBeBuiltIn() const {
  if (held_.size() > ToolCallParser::kMaxHeldBytes) return false;
  const size_t name = NameSize(held_);
  if (name > ToolCallParser::kMaxNameBytes) return false;
  const absl::string_view rest = absl::string_view(held_).substr(name);
  if (name == 0) return false;
  return absl::StartsWith(rest, kCall) || absl::StartsWith(kCall, rest);
}

void PythonCall::BeginOther() {
  if (writer_.Offers(kInterpreter)) {
    kind_ = Kind::kCode;
    writer_.Begin(kInterpreter);
    writer_.Arguments("{\"code\": \"");
  } else {
    kind_ = Kind::kContent;
    writer_.Content(tag_);
  }
  // The bytes held back begin the code or the content.
  Write(std::exchange(held_, {}));
}

void PythonCall::Write(absl::string_view text) {
  if (kind_ == Kind::kContent) return writer_.Content(text);
  std::string escaped;
  AppendEscaped(text, escaped);
  writer_.Arguments(escaped);
}

void PythonCall::Take(char c) {
  if (kind_ != Kind::kUnknown) return Write(absl::string_view(&c, 1));
  held_.push_back(c);
  if (!MayBeBuiltIn()) BeginOther();
}

void PythonCall::End() {
  if (kind_ == Kind::kUnknown) {
    const absl::string_view text = held_;
    const absl::string_view name = text.substr(0, NameSize(text));
    if (absl::StartsWith(text.substr(name.size()), kCall) &&
        writer_.Offers(name)) {
      // Converted at the end only: JSON that has been sent cannot be taken
      // back.
      const auto arguments =
          ParseArguments(text.substr(name.size() + kCall.size()));
      if (arguments.has_value()) {
        writer_.Begin(name);
        writer_.Arguments(*arguments);
        writer_.End();
        return;
      }
    }
    BeginOther();
  }
  if (kind_ != Kind::kCode) return;
  writer_.Arguments("\"}");
  writer_.End();
}

}  // namespace foretoken
