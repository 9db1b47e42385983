// Files that tests read: golden files of the repository, and optional data
// that a machine may not have.
#ifndef FORETOKEN_TESTS_SUPPORT_TEST_DATA_H_
#define FORETOKEN_TESTS_SUPPORT_TEST_DATA_H_

#include <optional>
#include <string>

namespace foretoken::testing {

// The absolute path of a file in the repository: SourcePath("tests/unit/x").
std::string SourcePath(const std::string& relative);

// The absolute path of a file of the optional test data, or nothing.
std::optional<std::string> OptionalData(const std::string& relative);

}  // namespace foretoken::testing

// Skips the test, aloud, unless the optional data has `relative`; else defines
// the string `variable` with its path.
#define FORETOKEN_DATA_OR_SKIP(variable, relative)                          \
  const std::optional<std::string> variable##_optional =                    \
      ::foretoken::testing::OptionalData(relative);                         \
  if (!variable##_optional.has_value())                                     \
    GTEST_SKIP() << "optional test data not on this machine: " << relative; \
  const std::string& variable = *variable##_optional

#endif  // FORETOKEN_TESTS_SUPPORT_TEST_DATA_H_
