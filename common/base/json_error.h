// What the JSON parser says of bad text, for the three readers that build their
// own values from its events. Thread-safe.
#ifndef FORETOKEN_COMMON_BASE_JSON_ERROR_H_
#define FORETOKEN_COMMON_BASE_JSON_ERROR_H_

#include <cstddef>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace foretoken {

// "bad JSON: " and what is wrong where. Cut, because the message quotes the
// offending token, which may be very long; without the name of the exception,
// which stands before it in brackets.
inline std::string JsonErrorText(const std::exception& error) {
  constexpr size_t kMaxBytes = 200;
  absl::string_view what = error.what();
  const size_t name = what.find("] ");
  if (name != absl::string_view::npos) what.remove_prefix(name + 2);
  return absl::StrCat("bad JSON: ", what.substr(0, kMaxBytes));
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_JSON_ERROR_H_
