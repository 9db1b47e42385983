// Tool calls as Hermes and Qwen write them, content before and between:
//
//   <tool_call>
//   {"name": "f", "arguments": {"x": 1}}
//   </tool_call>
#include <optional>
#include <string>
#include <utility>

#include "common/text/chat/call_object_reader.h"
#include "common/text/chat/json_scanner.h"
#include "common/text/chat/tool_call_forms.h"

namespace foretoken {
namespace {

constexpr absl::string_view kOpen = "<tool_call>";
constexpr absl::string_view kClose = "</tool_call>";

// States: kContent, text before a tag; kCall, inside <tool_call>, the object is
// read; kBehindCall, the object is complete and the end tag follows; kSkip, a
// call that was sent in part is broken, and its rest is dropped up to a tag.
class HermesParser : public ByteParser {
 public:
  HermesParser(uint64_t id_seed, const ToolNames& offered, Fences fences)
      : ByteParser(ToolCallWriter::IdForm::kOpenAi, id_seed, offered, fences) {}

 protected:
  void Take(char c) override {
    switch (state_) {
      case State::kContent:
        if (content_.Take(c, writer_)) StartCall(content_.TakeTag());
        return;
      case State::kCall:
        return TakeCall(c);
      case State::kBehindCall:
        return TakeBehindCall(c);
      // A new call may begin without the end tag of the broken one.
      case State::kSkip:
        if (close_.Take(c)) state_ = State::kContent;
        if (open_.Take(c)) StartCall(std::string(kOpen));
        return;
    }
  }

  void End() override {
    if (state_ == State::kCall) writer_.Content(held_);
    if (state_ == State::kContent) content_.End(writer_);
  }

 private:
  enum class State : uint8_t {
    kContent,
    kCall,
    kBehindCall,  // its end tag follows
    kSkip,        // the rest of a call that breaks off after its arguments
  };

  void StartCall(std::string tag) {
    if (writer_.full()) {
      writer_.Content(tag);
      state_ = State::kContent;
      return;
    }
    held_ = std::move(tag);
    reader_.emplace(writer_, /*needs_arguments=*/false);
    state_ = State::kCall;
  }

  void TakeCall(char c) {
    const CallObjectReader::Result result = reader_->Take(c);
    if (reader_->begun()) held_.clear();
    if (result == CallObjectReader::Result::kDone) {
      close_ = TagMatcher(kClose);
      state_ = State::kBehindCall;
      return;
    }
    if (result == CallObjectReader::Result::kMore) {
      if (reader_->begun()) return;
      held_.push_back(c);
      if (held_.size() <= kMaxHeldBytes) return;
      writer_.Content(std::exchange(held_, {}));
      state_ = State::kContent;
      return;
    }
    // A call that has begun cannot become content again; one that has not is
    // text.
    if (reader_->begun()) {
      close_ = TagMatcher(kClose);
      open_ = TagMatcher(kOpen);
      state_ = State::kSkip;
    } else {
      writer_.Content(std::exchange(held_, {}));
      state_ = State::kContent;
    }
    Take(c);
  }

  void TakeBehindCall(char c) {
    const size_t matched = close_.matched();
    // Models often write one closing brace too many.
    if (matched == 0 && (IsJsonSpace(c) || c == '}')) return;
    if (close_.Take(c)) {
      state_ = State::kContent;
    } else if (close_.matched() != matched + 1) {
      // Not the end tag, although it began like it: the matched bytes and this
      // one may begin the next call or be content.
      state_ = State::kContent;
      for (const char byte : kClose.substr(0, matched)) Take(byte);
      Take(c);
    }
  }

  State state_ = State::kContent;
  ContentReader content_{kOpen};
  TagMatcher open_{kOpen};
  TagMatcher close_{kClose};
  std::optional<CallObjectReader> reader_;
  std::string held_;  // of a call that has not begun
};

}  // namespace

std::unique_ptr<ToolCallParser> MakeHermesParser(
    uint64_t id_seed, const ToolNames& offered, ToolCallParser::Fences fences) {
  return std::make_unique<HermesParser>(id_seed, offered, fences);
}

}  // namespace foretoken
