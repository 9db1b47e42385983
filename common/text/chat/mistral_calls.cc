// Tool calls as Mistral's models write them after [TOOL_CALLS]: a list of
// objects,
//
//   [TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}]
//
// or, in newer models, each by itself:
//
//   [TOOL_CALLS]f[CALL_ID]123456789[ARGS]{"x": 1}
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/text/chat/arguments_reader.h"
#include "common/text/chat/call_object_reader.h"
#include "common/text/chat/json_scanner.h"
#include "common/text/chat/tool_call_forms.h"

namespace foretoken {
namespace {

constexpr absl::string_view kOpen = "[TOOL_CALLS]";

bool IsNameByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
         c == '-' || c == '.';
}

// Mistral's three forms: [TOOL_CALLS][{...}, {...}] with objects in a list,
// [TOOL_CALLS]{...} with one object, and
// [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...}, in which the controls in brackets are
// optional.
//
// Bytes of a call are held until it is certain to be one (its name is offered
// and its arguments begin); held bytes become content if it is not.
class MistralParser : public ByteParser {
 public:
  MistralParser(uint64_t id_seed, const ToolNames& offered, Fences fences)
      : ByteParser(ToolCallWriter::IdForm::kMistral, id_seed, offered, fences) {
  }

 protected:
  void Take(char c) override {
    switch (state_) {
      case State::kContent:
        if (!content_.Take(c, writer_)) return;
        // No further calls are taken: the tag is shown as text.
        if (writer_.full()) return writer_.Content(content_.TakeTag());
        held_ = content_.TakeTag();
        state_ = State::kBehindTag;
        return;
      case State::kBehindTag:
        if (IsJsonSpace(c)) return Hold(c);
        if (c == '[') {
          in_list_ = true;
          reader_.emplace(writer_, /*needs_arguments=*/false);
          state_ = State::kObject;
          return Hold(c);
        }
        if (c == '{') {
          in_list_ = false;
          reader_.emplace(writer_, /*needs_arguments=*/false);
          state_ = State::kObject;
          return TakeObject(c);
        }
        if (!IsNameByte(c)) return Fail(c);
        name_ = std::string(1, c);
        state_ = State::kName;
        return Hold(c);
      case State::kObject:
        return TakeObject(c);
      case State::kBehindObject:
        if (IsJsonSpace(c)) return;
        if (c == ',' && !writer_.full()) {
          reader_.emplace(writer_, /*needs_arguments=*/false);
          state_ = State::kObject;
          return Hold(c);
        }
        state_ = State::kContent;
        // A list that does not go on in order ends here; the byte belongs to
        // the content.
        if (c != ']') Take(c);
        return;
      case State::kName:
        if (c == '{') return TakeFirstOfArguments(c);
        if (c == '[') {
          control_ = "[";
          state_ = State::kControl;
        } else if (IsNameByte(c) && name_.size() < kMaxNameBytes) {
          name_.push_back(c);
        } else if (!IsJsonSpace(c)) {
          return Fail(c);
        }
        return Hold(c);
      case State::kControl:
        control_.push_back(c);
        if (c == ']') {
          if (control_ != "[ARGS]" && control_ != "[CALL_ID]") return Fail(c);
          state_ =
              control_ == "[ARGS]" ? State::kBeforeArguments : State::kCallId;
        }
        return Hold(c);
      case State::kCallId:
        if (c == '[') {
          control_ = "[";
          state_ = State::kControl;
        }
        return Hold(c);
      case State::kBeforeArguments:
        if (c == '{') return TakeFirstOfArguments(c);
        return IsJsonSpace(c) ? Hold(c) : Fail(c);
      case State::kArguments:
        return TakeArguments(c);
    }
  }

  void End() override {
    if (state_ == State::kContent) {
      content_.End(writer_);
    } else {
      writer_.Content(held_);
    }
  }

 private:
  enum class State : uint8_t {
    kContent,
    kBehindTag,
    kObject,        // {"name": ..., "arguments": ...}
    kBehindObject,  // a comma or the end of the list follows
    kName,
    kControl,  // [ARGS] or [CALL_ID]
    kCallId,
    kBeforeArguments,
    kArguments,
  };

  // Holds a byte of what may still be content, up to kMaxHeldBytes: output must
  // not be held back without a bound.
  void Hold(char c) {
    held_.push_back(c);
    if (held_.size() > kMaxHeldBytes) GiveUp();
  }
  void GiveUp() {
    writer_.Content(std::exchange(held_, {}));
    state_ = State::kContent;
  }
  // Ends an attempt to read a call at `c`, which does not continue it. The held
  // bytes become content and `c` is read again, since it may begin another tag.
  void Fail(char c) {
    GiveUp();
    Take(c);
  }

  void TakeObject(char c) {
    const CallObjectReader::Result result = reader_->Take(c);
    // The call has begun and is sent: it can no longer become content.
    if (reader_->begun()) held_.clear();
    switch (result) {
      case CallObjectReader::Result::kMore:
        if (!reader_->begun()) Hold(c);
        return;
      case CallObjectReader::Result::kDone:
        state_ = in_list_ ? State::kBehindObject : State::kContent;
        return;
      case CallObjectReader::Result::kMalformed:
        return Fail(c);
    }
  }

  void TakeFirstOfArguments(char c) {
    if (!writer_.Offers(name_)) return Fail(c);
    arguments_.emplace(writer_);
    arguments_->SetName(name_);
    state_ = State::kArguments;
    TakeArguments(c);
  }

  void TakeArguments(char c) {
    if (!arguments_->Take(c)) return Fail(c);
    if (!arguments_->begun()) return Hold(c);
    held_.clear();
    if (arguments_->ended()) state_ = State::kContent;
  }

  State state_ = State::kContent;
  ContentReader content_{kOpen};
  std::string held_;  // of a call that has not begun
  bool in_list_ = false;
  std::optional<CallObjectReader> reader_;
  std::string name_;
  std::string control_;
  std::optional<ArgumentsReader> arguments_;
};

}  // namespace

std::unique_ptr<ToolCallParser> MakeMistralParser(
    uint64_t id_seed, const ToolNames& offered, ToolCallParser::Fences fences) {
  return std::make_unique<MistralParser>(id_seed, offered, fences);
}

}  // namespace foretoken
