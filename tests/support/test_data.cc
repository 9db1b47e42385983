#include "tests/support/test_data.h"

#include <unistd.h>

#include <cstdlib>

namespace foretoken::testing {

std::string SourcePath(const std::string& relative) {
  return std::string(FORETOKEN_SOURCE_DIR) + "/" + relative;
}

std::optional<std::string> OptionalData(const std::string& relative) {
  const char* root = std::getenv("FORETOKEN_TEST_DATA");
  const std::string path =
      std::string(root != nullptr ? root : FORETOKEN_DEFAULT_TEST_DATA) + "/" +
      relative;
  if (access(path.c_str(), R_OK) != 0) return std::nullopt;
  return path;
}

}  // namespace foretoken::testing
