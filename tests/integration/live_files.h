// LiveFiles: TLS files that are replaced while they are used.
#ifndef FORETOKEN_TESTS_INTEGRATION_LIVE_FILES_H_
#define FORETOKEN_TESTS_INTEGRATION_LIVE_FILES_H_

#include <filesystem>
#include <string>

#include "common/base/file.h"
#include "gtest/gtest.h"
#include "tests/integration/certificates.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::testing {

// Certificate, key and roots of one party, switched as a whole.
class LiveFiles {
 public:
  explicit LiveFiles(const TempDir& dir) : dir_(dir.File("live")) {}

  void Switch(const Certificates& files, const std::string& roots) {
    const std::string version = dir_ + std::to_string(++versions_);
    std::filesystem::create_directory(version);
    std::filesystem::copy(files.cert, version + "/cert.pem");
    std::filesystem::copy(files.key, version + "/key.pem");
    FORETOKEN_EXPECT_OK(WriteFileAtomically(version + "/ca.pem", roots));
    std::filesystem::create_directory_symlink(version, dir_ + ".next");
    std::filesystem::rename(dir_ + ".next", dir_);
  }
  std::string cert() const { return dir_ + "/cert.pem"; }
  std::string key() const { return dir_ + "/key.pem"; }
  std::string ca() const { return dir_ + "/ca.pem"; }

 private:
  const std::string dir_;
  int versions_ = 0;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_INTEGRATION_LIVE_FILES_H_
