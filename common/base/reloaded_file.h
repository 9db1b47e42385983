// ReloadedFile: what a file says, read again when the file changes.
//
// A changed file that cannot be read, or is invalid, leaves what was read
// before. It is tried again until it can be read, and logged once.
//
// Thread-safe: one caller reads, while the others go on with what there is.
#ifndef FORETOKEN_COMMON_BASE_RELOADED_FILE_H_
#define FORETOKEN_COMMON_BASE_RELOADED_FILE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/file_version.h"
#include "common/base/log.h"

namespace foretoken {

// Interval between checks of a file for changes.
inline constexpr absl::Duration kReloadInterval = absl::Seconds(1);

template <typename T>
class ReloadedFile {
 public:
  using Reader = std::function<absl::StatusOr<T>(const std::string& path)>;

  ReloadedFile(std::string path, Reader read, Clock clock)
      : path_(std::move(path)),
        read_(std::move(read)),
        clock_(std::move(clock)) {}

  // Reads the file, once and before anything else. Errors are the reader's.
  absl::Status Load() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    looked_ = clock_();
    version_ = FileVersion::Of(path_);
    absl::StatusOr<T> value = read_(path_);
    if (!value.ok()) return value.status();
    value_ = std::make_shared<const T>(*std::move(value));
    return absl::OkStatus();
  }

  // Shared with callers that still use it when it is replaced.
  std::shared_ptr<const T> Get() ABSL_LOCKS_EXCLUDED(mu_) {
    FileVersion current;
    {
      absl::MutexLock lock(&mu_);
      const absl::Time now = clock_();
      if (reading_ || now < looked_ + kReloadInterval) return value_;
      looked_ = now;
      reading_ = true;
      current = version_;
    }
    // Without the lock: a file may lie where reading takes long.
    const FileVersion version = FileVersion::Of(path_);
    const bool changed = !(version == current);
    absl::StatusOr<T> value = absl::UnavailableError("unchanged");
    if (changed) value = read_(path_);
    absl::MutexLock lock(&mu_);
    reading_ = false;
    if (changed && !value.ok()) {
      if (bad_ != version) {
        FORETOKEN_LOG(kError,
                      "what was read before stays: ", value.status().message());
      }
      bad_ = version;
      return value_;
    }
    bad_.reset();
    if (changed) {
      value_ = std::make_shared<const T>(*std::move(value));
      version_ = version;
      FORETOKEN_LOG(kInfo, path_, ": read again");
    }
    return value_;
  }

 private:
  const std::string path_;
  const Reader read_;
  const Clock clock_;
  absl::Mutex mu_;
  std::shared_ptr<const T> value_ ABSL_GUARDED_BY(mu_);
  FileVersion version_ ABSL_GUARDED_BY(mu_);  // of value_
  // A later version that could not be read, and was logged.
  std::optional<FileVersion> bad_ ABSL_GUARDED_BY(mu_);
  absl::Time looked_ ABSL_GUARDED_BY(mu_);
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_RELOADED_FILE_H_
