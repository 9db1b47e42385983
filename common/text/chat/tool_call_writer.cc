#include "common/text/chat/tool_call_writer.h"

#include "common/text/chat/fenced_calls.h"

namespace foretoken {

ToolCallWriter::ToolCallWriter(IdForm form, uint64_t seed,
                               const ToolNames& offered, Fences fences)
    : form_(form),
      state_(seed),
      offered_(offered),
      fences_(fences == Fences::kRead
                  ? std::make_unique<FencedCalls>(*this, offered)
                  : nullptr) {}

ToolCallWriter::~ToolCallWriter() = default;

void ToolCallWriter::Content(absl::string_view text) {
  if (fences_ == nullptr) return PlainContent(text);
  for (const char c : text) fences_->Take(c);
}

void ToolCallWriter::EndContent() {
  if (fences_ != nullptr) fences_->End();
}

void ToolCallWriter::Begin(absl::string_view name) {
  // Content that waits stands before the call.
  if (fences_ != nullptr) fences_->Interrupt();
  ToolCallDelta& call = delta_.tool_calls.emplace_back();
  call.index = calls_++;
  call.content_before = delta_.content.size();
  call.id = NewId();
  call.name = std::string(name);
}

void ToolCallWriter::Arguments(absl::string_view piece) {
  if (piece.empty()) return;
  // OpenAI's streaming form: only the first delta of a call has id and name,
  // later ones add to the arguments by index.
  const int index = calls_ - 1;
  if (delta_.tool_calls.empty() || delta_.tool_calls.back().index != index) {
    ToolCallDelta& part = delta_.tool_calls.emplace_back();
    part.index = index;
    part.content_before = delta_.content.size();
  }
  delta_.tool_calls.back().arguments.append(piece.data(), piece.size());
}

std::string ToolCallWriter::NewId() {
  constexpr absl::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string id = form_ == IdForm::kOpenAi ? "call_" : "";
  // Mistral's templates accept ids of exactly nine letters and digits.
  for (int i = form_ == IdForm::kOpenAi ? 24 : 9; i > 0; --i) {
    // SplitMix64: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
    // Generators" (2014).
    state_ += 0x9E3779B97F4A7C15;
    uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
    bits ^= bits >> 31;
    id.push_back(kDigits[bits % kDigits.size()]);
  }
  return id;
}

}  // namespace foretoken
