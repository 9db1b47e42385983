#include "common/text/chat/call_object_reader.h"

#include "absl/strings/string_view.h"

namespace foretoken {

CallObjectReader::Result CallObjectReader::End() {
  if (doubled_ && state_ != State::kSecondEnd) {
    state_ = State::kSecondEnd;
    return Result::kMore;
  }
  if (!has_name_ || (needs_arguments_ && !has_arguments_)) {
    return Result::kMalformed;
  }
  if (!has_arguments_) arguments_.SetNone();
  return Result::kDone;
}

CallObjectReader::Result CallObjectReader::BeginValue(char c) {
  text_ = JsonStringDecoder();
  value_ = JsonValueScanner();
  // The key decides how its value is read; of repeated keys, the first counts.
  // "parameters" is Llama's name of "arguments". Values of other keys are
  // scanned and dropped.
  if (key_ == "name" && !has_name_) {
    state_ = State::kName;
    return c == '"' ? Result::kMore : Result::kMalformed;
  }
  if ((key_ != "arguments" && key_ != "parameters") || has_arguments_) {
    state_ = State::kOther;
    return TakeOther(c);
  }
  has_arguments_ = true;
  // Some models write the arguments as a string that holds JSON: its decoded
  // bytes are read like an object.
  if (c == '"') {
    state_ = State::kArgumentsText;
    return Result::kMore;
  }
  if (c == 'n') {
    state_ = State::kNull;
    return TakeOther(c);
  }
  state_ = State::kArguments;
  return TakeArguments(c);
}

CallObjectReader::Result CallObjectReader::TakeOther(char c) {
  const JsonValueScanner::Step step = value_.Take(c);
  if (step == JsonValueScanner::Step::kMalformed) return Result::kMalformed;
  if (step == JsonValueScanner::Step::kMore) return Result::kMore;
  if (state_ == State::kNull) arguments_.SetNone();
  state_ = State::kCommaOrEnd;
  // A number ends only at the byte after it, which is read again as part of the
  // object.
  return step == JsonValueScanner::Step::kEnded ? Take(c) : Result::kMore;
}

CallObjectReader::Result CallObjectReader::TakeName(char c) {
  const bool ended = text_.Take(c, name_);
  if (name_.size() > ToolCallParser::kMaxNameBytes) return Result::kMalformed;
  if (!ended) return Result::kMore;
  // A name that the request does not offer makes the object text: the answer
  // may be JSON of its own.
  if (!writer_.Offers(name_)) return Result::kMalformed;
  has_name_ = true;
  state_ = State::kCommaOrEnd;
  arguments_.SetName(name_);
  return Result::kMore;
}

CallObjectReader::Result CallObjectReader::TakeArguments(char c) {
  if (!arguments_.Take(c)) return Result::kMalformed;
  if (arguments_.ended()) state_ = State::kCommaOrEnd;
  return Result::kMore;
}

CallObjectReader::Result CallObjectReader::TakeArgumentsText(char c) {
  std::string bytes;
  const bool ended = text_.Take(c, bytes);
  for (const char byte : bytes) {
    if (!arguments_.Take(byte)) return Result::kMalformed;
    arguments_text_ = true;
  }
  if (!ended) return Result::kMore;
  if (!arguments_text_) arguments_.SetNone();
  if (!arguments_.ended()) return Result::kMalformed;
  state_ = State::kCommaOrEnd;
  return Result::kMore;
}

CallObjectReader::Result CallObjectReader::Take(char c) {
  switch (state_) {
    case State::kKey:
      if (text_.Take(c, key_)) state_ = State::kColon;
      return key_.size() > ToolCallParser::kMaxNameBytes ? Result::kMalformed
                                                         : Result::kMore;
    case State::kOther:
    case State::kNull:
      return TakeOther(c);
    case State::kName:
      return TakeName(c);
    case State::kArguments:
      return TakeArguments(c);
    case State::kArgumentsText:
      return TakeArgumentsText(c);
    default:
      break;
  }
  if (IsJsonSpace(c)) return Result::kMore;
  switch (state_) {
    case State::kStart:
      state_ = State::kBraceOrKey;
      return c == '{' ? Result::kMore : Result::kMalformed;
    case State::kBraceOrKey:
      doubled_ = c == '{';
      state_ = State::kKeyOrEnd;
      return doubled_ ? Result::kMore : Take(c);
    case State::kSecondEnd:
      return c == '}' ? End() : Result::kMalformed;
    case State::kKeyOrEnd:
      if (c == '}') return End();
      if (c != '"') return Result::kMalformed;
      key_.clear();
      text_ = JsonStringDecoder();
      state_ = State::kKey;
      return Result::kMore;
    case State::kColon:
      state_ = State::kValue;
      return c == ':' ? Result::kMore : Result::kMalformed;
    case State::kValue:
      return BeginValue(c);
    default:  // kCommaOrEnd
      if (c == '}') return End();
      state_ = State::kKeyOrEnd;
      return c == ',' ? Result::kMore : Result::kMalformed;
  }
}

}  // namespace foretoken
