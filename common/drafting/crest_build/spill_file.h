// SpillFile: temporary data on disk, with errors as Status.
//
// Thread-safe: Allocate returns disjoint ranges, and reads and writes specify
// their offset.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_SPILL_FILE_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_SPILL_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace foretoken {

class SpillFile {
 public:
  // Creates an empty file, or opens the existing one. Errors name the path.
  static absl::StatusOr<std::unique_ptr<SpillFile>> Create(
      const std::string& path);
  static absl::StatusOr<std::unique_ptr<SpillFile>> Open(
      const std::string& path);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Allocates `bytes` at the end and returns their offset.
  uint64_t Allocate(uint64_t bytes) { return size_.fetch_add(bytes); }
  absl::Status Write(uint64_t offset, const void* data, size_t bytes);
  absl::Status Append(const void* data, size_t bytes) {
    return Write(Allocate(bytes), data, bytes);
  }

  // Reads exactly `bytes`; DataLoss if the file ends before.
  absl::Status Read(uint64_t offset, void* data, size_t bytes) const;

  // XXH3 of the whole file, which is read once more.
  absl::StatusOr<uint64_t> Digest() const;

  absl::Status Sync() const;
  uint64_t size() const { return size_.load(); }
  const std::string& path() const { return path_; }

 private:
  SpillFile(std::string path, int fd, uint64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}

  const std::string path_;
  const int fd_;
  std::atomic<uint64_t> size_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_SPILL_FILE_H_
