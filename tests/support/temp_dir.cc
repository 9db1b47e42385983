#include "tests/support/temp_dir.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/base/check.h"

namespace foretoken::testing {

TempDir::TempDir() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "foretoken-XXXXXX").string();
  FORETOKEN_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::Write(const std::string& name,
                           const std::string& bytes) const {
  const std::string path = File(name);
  std::filesystem::create_directories(
      std::filesystem::path(path).parent_path());
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  FORETOKEN_CHECK(out.good());
  return path;
}

}  // namespace foretoken::testing
