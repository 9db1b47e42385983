#include "common/text/chat/call_object_reader.h"

#include "absl/strings/string_view.h"

namespace foretoken {

void CallObjectReader::BeginIfReady() {
  if (begun_ || !has_name_ || !has_arguments_) return;
  begun_ = true;
  writer_.Begin(name_);
  Emit();
}

void CallObjectReader::Emit() {
  if (!begun_) return;
  writer_.Arguments(pending_);
  pending_.clear();
}

CallObjectReader::Result CallObjectReader::End() {
  if (!has_name_ || (needs_arguments_ && !has_arguments_)) {
    return Result::kMalformed;
  }
  if (!has_arguments_) {
    has_arguments_ = true;
    pending_ = "{}";
  }
  BeginIfReady();
  return Result::kDone;
}

void CallObjectReader::EndValue() {
  if (field_ == Field::kName) has_name_ = !name_.empty();
  BeginIfReady();
  state_ = State::kCommaOrEnd;
}

CallObjectReader::Result CallObjectReader::TakeInside(char c) {
  const JsonValueScanner::Step step = value_.Take(c);
  if (step == JsonValueScanner::Step::kMalformed) return Result::kMalformed;
  if (step == JsonValueScanner::Step::kEnded) {
    EndValue();
    return Take(c);
  }
  if (field_ == Field::kArguments) {
    pending_.push_back(c);
    Emit();
  }
  if (step == JsonValueScanner::Step::kLast) EndValue();
  return Result::kMore;
}

CallObjectReader::Result CallObjectReader::Take(char c) {
  if (state_ != State::kKey && state_ != State::kText &&
      state_ != State::kInside && IsJsonSpace(c)) {
    return Result::kMore;
  }
  switch (state_) {
    case State::kStart:
      if (c != '{') return Result::kMalformed;
      state_ = State::kKeyOrEnd;
      return Result::kMore;
    case State::kKeyOrEnd:
      if (c == '}') return End();
      if (c != '"') return Result::kMalformed;
      key_.clear();
      text_ = JsonStringDecoder();
      state_ = State::kKey;
      return Result::kMore;
    case State::kKey:
      if (text_.Take(c, key_)) state_ = State::kColon;
      return key_.size() > ToolCallParser::kMaxNameBytes ? Result::kMalformed
                                                         : Result::kMore;
    case State::kColon:
      if (c != ':') return Result::kMalformed;
      state_ = State::kValue;
      return Result::kMore;
    case State::kValue: {
      // The first of several counts.
      field_ = Field::kOther;
      if (key_ == "name" && !has_name_) field_ = Field::kName;
      if ((key_ == "arguments" || key_ == "parameters") && !has_arguments_) {
        field_ = Field::kArguments;
        has_arguments_ = true;
      }
      if (c == '"' && field_ != Field::kOther) {
        text_ = JsonStringDecoder();
        state_ = State::kText;
        BeginIfReady();
        return Result::kMore;
      }
      if (field_ == Field::kName) return Result::kMalformed;
      value_ = JsonValueScanner();
      state_ = State::kInside;
      const Result result = TakeInside(c);
      if (result != Result::kMalformed) BeginIfReady();
      return result;
    }
    case State::kInside:
      return TakeInside(c);
    case State::kText: {
      const bool ended =
          text_.Take(c, field_ == Field::kName ? name_ : pending_);
      if (name_.size() > ToolCallParser::kMaxNameBytes) {
        return Result::kMalformed;
      }
      Emit();
      if (ended) EndValue();
      return Result::kMore;
    }
    case State::kCommaOrEnd:
      if (c == '}') return End();
      if (c != ',') return Result::kMalformed;
      state_ = State::kKeyOrEnd;
      return Result::kMore;
  }
  return Result::kMalformed;
}

}  // namespace foretoken
