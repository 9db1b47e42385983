// FileVersion: tells whether a file is still the one that was read.
#ifndef FORETOKEN_COMMON_BASE_FILE_VERSION_H_
#define FORETOKEN_COMMON_BASE_FILE_VERSION_H_

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace foretoken {

struct FileVersion {
  int64_t inode = 0, size = 0, modified_ns = 0;
  bool operator==(const FileVersion&) const = default;

  // The version of a missing file is {}. Read it before the file: a change in
  // between is noticed at the next look.
  static FileVersion Of(const std::string& path) {
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0) return {};
    return {static_cast<int64_t>(status.st_ino),
            static_cast<int64_t>(status.st_size),
            int64_t{status.st_mtim.tv_sec} * 1'000'000'000 +
                status.st_mtim.tv_nsec};
  }
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_FILE_VERSION_H_
