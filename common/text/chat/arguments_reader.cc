#include "common/text/chat/arguments_reader.h"

#include "absl/strings/str_format.h"

namespace foretoken {

void ArgumentsReader::Emit() {
  if (!begun_) {
    // A call is sent once its name is known and its arguments are complete or
    // too long to be held: short arguments that turn out malformed can still
    // become content.
    if (name_.empty() || (!ended_ && pending_.size() <= kMaxWholeBytes)) return;
    begun_ = true;
    writer_.Begin(name_);
  }
  writer_.Arguments(pending_);
  pending_.clear();
  if (ended_) writer_.End();
}

void ArgumentsReader::SetName(absl::string_view name) {
  name_ = std::string(name);
  Emit();
}

void ArgumentsReader::SetNone() {
  started_ = ended_ = true;
  pending_ = "{}";
  Emit();
}

bool ArgumentsReader::Take(char c) {
  if (!started_ || ended_) {
    if (IsJsonSpace(c)) return true;
    if (ended_ || c != '{') return false;
    started_ = true;
  }
  const bool in_string = scanner_.in_string();
  const JsonValueScanner::Step step = scanner_.Take(c);
  if (step == JsonValueScanner::Step::kMalformed) return false;
  const auto byte = static_cast<unsigned char>(c);
  if (in_string && byte < 0x20) {
    // JSON wants control characters in strings escaped, but models write them
    // raw.
    pending_ += c == '\n'   ? "\\n"
                : c == '\t' ? "\\t"
                            : absl::StrFormat("\\u%04x", byte);
  } else {
    pending_.push_back(c);
  }
  ended_ = step == JsonValueScanner::Step::kLast;
  Emit();
  return true;
}

}  // namespace foretoken
