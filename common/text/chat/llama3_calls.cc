// Tool calls as Llama 3 writes them: an object at the beginning of the answer
// or after <|python_tag|>, several with semicolons between them,
//
//   {"name": "f", "parameters": {"x": 1}}
//
// or Python after <|python_tag|> (see PythonCall).
#include <optional>
#include <string>
#include <utility>

#include "common/text/chat/call_object_reader.h"
#include "common/text/chat/json_scanner.h"
#include "common/text/chat/python_call.h"
#include "common/text/chat/tool_call_forms.h"

namespace foretoken {
namespace {

constexpr absl::string_view kTag = "<|python_tag|>";

// States: kStart, white space at the beginning, where a bare JSON object is a
// call; kContent, text before a tag; kBehindTag, after the tag, before its code
// or object; kObject, an object that may be a call; kBehindObject, after a
// call, where another may follow; kPython, code after the tag, until the end.
//
// Bytes of an object are held until it is certain to be a call.
class Llama3Parser : public ByteParser {
 public:
  Llama3Parser(uint64_t id_seed, const ToolNames& offered, Fences fences)
      : ByteParser(ToolCallWriter::IdForm::kOpenAi, id_seed, offered, fences) {}

 protected:
  void Take(char c) override {
    switch (state_) {
      case State::kStart:
        if (IsJsonSpace(c)) return Hold(c);
        if (c == '{') return StartObject(c);
        return Fail(c);
      case State::kContent:
        if (!content_.Take(c, writer_)) return;
        if (writer_.full()) return writer_.Content(content_.TakeTag());
        content_.TakeTag();  // what follows is a call or code, with its tag
        state_ = State::kBehindTag;
        return;
      case State::kBehindTag:
        if (IsJsonSpace(c)) return;
        behind_tag_ = true;
        if (c == '{') return StartObject(c);
        python_.emplace(kTag, writer_);
        state_ = State::kPython;
        return python_->Take(c);
      case State::kObject:
        return TakeObject(c);
      case State::kBehindObject:
        if (IsJsonSpace(c) || c == ';') return;
        behind_tag_ = false;
        if (c == '{' && !writer_.full()) return StartObject(c);
        return Fail(c);
      case State::kPython:
        return python_->Take(c);
    }
  }

  void End() override {
    if (state_ == State::kContent) return content_.End(writer_);
    if (state_ == State::kObject && !reader_->begun() && behind_tag_) {
      StartPython();
    }
    if (state_ == State::kPython) return python_->End();
    writer_.Content(held_);
  }

 private:
  enum class State : uint8_t {
    kStart,  // white space so far
    kContent,
    kBehindTag,
    kObject,
    kBehindObject,
    kPython,
  };

  // Holds a byte of what may still be content.
  void Hold(char c) {
    held_.push_back(c);
    if (held_.size() > kMaxHeldBytes) GiveUp();
  }
  void GiveUp() {
    // After the tag, an object that is not a call is code.
    if (behind_tag_) return StartPython();
    state_ = State::kContent;
    // Read the held bytes again as content: they may contain the tag.
    for (const char byte : std::exchange(held_, {})) Take(byte);
  }
  // Ends an attempt to read a call at `c`, which does not continue it and is
  // read again.
  void Fail(char c) {
    GiveUp();
    Take(c);
  }

  void StartPython() {
    python_.emplace(kTag, writer_);
    state_ = State::kPython;
    for (const char byte : std::exchange(held_, {})) python_->Take(byte);
  }

  void StartObject(char c) {
    // Only an object with a name and arguments is a call: an answer may be JSON
    // itself.
    reader_.emplace(writer_, /*needs_arguments=*/true);
    state_ = State::kObject;
    TakeObject(c);
  }

  void TakeObject(char c) {
    const CallObjectReader::Result result = reader_->Take(c);
    if (reader_->begun()) {
      held_.clear();
      behind_tag_ = false;
    }
    switch (result) {
      case CallObjectReader::Result::kMore:
        if (!reader_->begun()) Hold(c);
        return;
      case CallObjectReader::Result::kDone:
        state_ = State::kBehindObject;
        return;
      case CallObjectReader::Result::kMalformed:
        return Fail(c);
    }
  }

  State state_ = State::kStart;
  ContentReader content_{kTag};
  std::optional<CallObjectReader> reader_;
  std::optional<PythonCall> python_;
  bool behind_tag_ = false;
  std::string held_;  // of a call that has not begun
};

}  // namespace

std::unique_ptr<ToolCallParser> MakeLlama3Parser(
    uint64_t id_seed, const ToolNames& offered, ToolCallParser::Fences fences) {
  return std::make_unique<Llama3Parser>(id_seed, offered, fences);
}

}  // namespace foretoken
