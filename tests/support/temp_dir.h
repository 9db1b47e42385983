// A folder that goes away with the test.
#ifndef FORETOKEN_TESTS_SUPPORT_TEMP_DIR_H_
#define FORETOKEN_TESTS_SUPPORT_TEMP_DIR_H_

#include <string>

namespace foretoken::testing {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file and returns its path.
  std::string Write(const std::string& name, const std::string& bytes) const;

 private:
  std::string path_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_TEMP_DIR_H_
