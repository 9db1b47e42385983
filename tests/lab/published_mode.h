// Modes as the reports name them: `ouroboros` alone is the paper's Algorithm 1 at
// the settings that all published comparisons are made with, whatever a request
// without parameters gets.
#ifndef FORETOKEN_TESTS_LAB_PUBLISHED_MODE_H_
#define FORETOKEN_TESTS_LAB_PUBLISHED_MODE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/speculation/modes.h"

namespace foretoken {

inline absl::StatusOr<Mode> ParsePublished(absl::string_view text,
                                           ModeUse use = ModeUse::kRequest) {
  return Mode::Parse(text == "ouroboros" ? "ouroboros:preset=paper" : text,
                     use);
}

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_PUBLISHED_MODE_H_
