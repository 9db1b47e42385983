#include "common/text/chat/fenced_calls.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/text/chat/json_scanner.h"

namespace foretoken {
namespace {

constexpr char kTick = '`';
constexpr size_t kTicks = 3;
constexpr absl::string_view kJson = "json";
constexpr absl::string_view kFirstKey = "\"name\"";
// White space before a block and in the line of its fence; with more of it the
// block is content.
constexpr size_t kMaxSpaces = 64;

bool IsBlank(char c) { return IsJsonSpace(c) && c != '\n'; }

// Whether the text after the backticks of a fence says `json` or nothing, or
// may still come to.
bool MayBeJson(absl::string_view language) {
  if (language.size() > kMaxSpaces) return false;
  while (!language.empty() && IsBlank(language.front())) {
    language.remove_prefix(1);
  }
  if (absl::StartsWith(kJson, language)) return true;
  return absl::ConsumePrefix(&language, kJson) &&
         language.find_first_not_of(" \t\r") == absl::string_view::npos;
}

// The same once the line is whole.
bool IsJson(absl::string_view language) {
  const size_t first = language.find_first_not_of(" \t\r");
  return first == absl::string_view::npos ||
         absl::StartsWith(language.substr(first), kJson);
}

enum class BareCall : uint8_t { kNo, kMaybe, kYes };

// Whether a text without a fence begins a call. Other objects are not held
// back: an answer may be JSON that a client reads as it comes.
BareCall BeginsBareCall(absl::string_view text) {
  std::string start;
  for (const char c : text) {
    if (!IsJsonSpace(c)) start.push_back(c);
  }
  absl::string_view rest = start;
  absl::ConsumePrefix(&rest, "[");
  if (!absl::ConsumePrefix(&rest, "{")) {
    return rest.empty() ? BareCall::kMaybe : BareCall::kNo;
  }
  absl::ConsumePrefix(&rest, "{");
  if (absl::StartsWith(rest, kFirstKey)) return BareCall::kYes;
  // Bounded, because it is asked anew for every byte.
  return absl::StartsWith(kFirstKey, rest) && text.size() <= kMaxSpaces
             ? BareCall::kMaybe
             : BareCall::kNo;
}

}  // namespace

void FencedCalls::Release() {
  has_content_ = has_content_ || !held_.empty();
  writer_.PlainContent(std::exchange(spaces_, {}));
  writer_.PlainContent(std::exchange(held_, {}));
  behind_call_ = false;
}

void FencedCalls::Interrupt() {
  Release();
  line_start_ = true;
  BeginLine();
  // A block around such a call goes on after it. The white space before the
  // call, which other readers drop, may have been the end of the fence's line.
  const bool outside = state_ == State::kText || state_ == State::kBareCall ||
                       (state_ == State::kFence && ticks_ < kTicks);
  state_ = outside ? State::kText : State::kOtherBlock;
}

void FencedCalls::End() {
  if (state_ == State::kBareCall && part_ == Part::kClose) return WriteCalls();
  // White space after a call is not content.
  if (state_ == State::kText && behind_call_) return;
  Release();
}

void FencedCalls::Take(char c) {
  switch (state_) {
    case State::kText:
      return TakeText(c);
    case State::kFence:
      return TakeFence(c);
    case State::kOtherFence:
      return TakeOtherFence(c);
    case State::kCall:
      return TakeCall(c);
    case State::kBareCall:
      return TakeBareCall(c);
    case State::kOtherBlock:
      return TakeOtherBlock(c);
  }
}

void FencedCalls::TakeText(char c) {
  if (IsJsonSpace(c)) {
    if (c == '\n') line_start_ = true;
    spaces_.push_back(c);
    if (spaces_.size() > kMaxSpaces) {
      writer_.PlainContent(spaces_.substr(0, 1));
      spaces_.erase(0, 1);
    }
    return;
  }
  if (c == kTick && line_start_) {
    held_ = std::string(1, c);
    ticks_ = 1;
    in_ticks_ = true;
    state_ = State::kFence;
    return;
  }
  if ((c == '{' || c == '[') && !has_content_) {
    BeginBlock(State::kBareCall);
    return TakeBareCall(c);
  }
  held_.push_back(c);
  Release();
  line_start_ = false;
}

void FencedCalls::TakeFence(char c) {
  if (c == kTick && in_ticks_) {
    held_.push_back(c);
    if (++ticks_ <= kTicks) return;
    // A longer fence is for blocks that show fences.
    Release();
    state_ = State::kOtherFence;
    return;
  }
  in_ticks_ = false;
  if (ticks_ < kTicks) {  // code within a line of text
    Release();
    state_ = State::kText;
    line_start_ = false;
    return TakeText(c);
  }
  if (c == '\n' && IsJson(absl::string_view(held_).substr(kTicks))) {
    held_.push_back(c);
    return BeginBlock(State::kCall);
  }
  held_.push_back(c);
  if (c != '\n' && MayBeJson(absl::string_view(held_).substr(kTicks))) return;
  held_.pop_back();
  Release();
  state_ = State::kOtherFence;
  TakeOtherFence(c);
}

void FencedCalls::TakeOtherFence(char c) {
  if (c == kTick && !in_ticks_) {
    // No backticks follow a fence's language: this is code inside a sentence.
    state_ = State::kText;
    line_start_ = false;
    return TakeText(c);
  }
  writer_.PlainContent(absl::string_view(&c, 1));
  if (c == kTick) {
    ++ticks_;
  } else {
    in_ticks_ = false;
  }
  if (c == '\n') BeginBlock(State::kOtherBlock);
}

void FencedCalls::BeginLine() {
  line_ticks_ = 0;
  line_in_ticks_ = true;
  line_has_text_ = false;
}

void FencedCalls::BeginBlock(State state) {
  state_ = state;
  BeginLine();
  part_ = Part::kValue;
  in_list_ = false;
  close_ticks_ = 0;
  reader_.reset();
  calls_.reset();
  is_bare_call_ = false;
  if (state == State::kCall || state == State::kBareCall) {
    calls_.emplace(ToolCallWriter::IdForm::kOpenAi, /*seed=*/0, offered_);
  }
}

bool FencedCalls::CloseBlock(char c) {
  if (c == '\n') {
    const bool closed = line_ticks_ >= ticks_ && !line_has_text_;
    BeginLine();
    return closed;
  }
  if (c == kTick && line_in_ticks_) {
    ++line_ticks_;
  } else if (!IsBlank(c)) {
    line_has_text_ = true;
  }
  // Blanks may stand before the backticks, but not between them.
  line_in_ticks_ =
      line_in_ticks_ && (c == kTick || (line_ticks_ == 0 && IsBlank(c)));
  return false;
}

void FencedCalls::TakeOtherBlock(char c) {
  writer_.PlainContent(absl::string_view(&c, 1));
  if (!CloseBlock(c)) return;
  state_ = State::kText;
  line_start_ = true;
}

bool FencedCalls::TakeValue(char c) {
  if (part_ == Part::kObject) {
    const CallObjectReader::Result result = reader_->Take(c);
    if (result == CallObjectReader::Result::kDone) {
      part_ = in_list_ ? Part::kBehindObject : Part::kClose;
    }
    return result != CallObjectReader::Result::kMalformed;
  }
  if (IsJsonSpace(c)) return close_ticks_ == 0;
  switch (part_) {
    case Part::kValue:
      if (c == '[' && !in_list_) {
        in_list_ = true;
        return true;
      }
      // An object without arguments may be any JSON with a name.
      reader_.emplace(*calls_, /*needs_arguments=*/true);
      part_ = Part::kObject;
      return writer_.calls() + calls_->calls() < ToolCallParser::kMaxCalls &&
             TakeValue(c);
    case Part::kBehindObject:
      part_ = c == ',' ? Part::kValue : Part::kClose;
      return c == ',' || c == ']';
    case Part::kObject:
    case Part::kClose:
      break;
  }
  if (c != kTick) return false;
  ++close_ticks_;
  return true;
}

void FencedCalls::TakeCall(char c) {
  held_.push_back(c);
  CloseBlock(c);
  // The fence ends the block even inside of a string, which may have no end.
  const bool is_cut_off = line_ticks_ == kTicks && part_ != Part::kClose;
  if (is_cut_off || held_.size() > ToolCallParser::kMaxHeldBytes ||
      !TakeValue(c)) {
    Release();
    state_ = State::kOtherBlock;
    return;
  }
  if (close_ticks_ == kTicks) WriteCalls();
}

void FencedCalls::TakeBareCall(char c) {
  if (part_ == Part::kClose && c == '\n') {
    WriteCalls();
    return TakeText(c);
  }
  held_.push_back(c);
  const BareCall begins =
      is_bare_call_ ? BareCall::kYes : BeginsBareCall(held_);
  is_bare_call_ = begins == BareCall::kYes;
  const bool ends_fence = part_ == Part::kClose && c == kTick;  // of none
  if (begins != BareCall::kNo && !ends_fence && TakeValue(c) &&
      held_.size() <= ToolCallParser::kMaxHeldBytes) {
    return;
  }
  // All of it is content; this byte may begin a fence.
  held_.pop_back();
  const size_t line = held_.rfind('\n');
  line_start_ = line != std::string::npos &&
                held_.find_first_not_of(" \t\r", line + 1) == std::string::npos;
  Release();
  state_ = State::kText;
  has_content_ = true;
  TakeText(c);
}

void FencedCalls::WriteCalls() {
  held_.clear();
  spaces_.clear();
  state_ = State::kText;
  const AnswerDelta delta = calls_->Take();
  for (const ToolCallDelta& call : delta.tool_calls) {
    writer_.Begin(call.name);
    writer_.Arguments(call.arguments);
    writer_.End();
  }
  line_start_ = false;
  behind_call_ = true;
}

}  // namespace foretoken
