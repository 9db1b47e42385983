#include "common/drafting/crest_build/work_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

constexpr char kStateFile[] = "crest-build.json";
constexpr char kLockFile[] = "crest-build.lock";
constexpr char kSpillSuffix[] = ".crest-spill";

}  // namespace

absl::StatusOr<std::unique_ptr<WorkFolder>> WorkFolder::Open(
    const std::string& path, const std::string& key) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": create"));
  }
  const std::string lock = absl::StrCat(path, "/", kLockFile);
  const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(lock, ": open"));
  std::unique_ptr<WorkFolder> folder(new WorkFolder(path, fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::AbortedError(
        absl::StrCat(path, ": another build is at work in this folder"));
  }
  absl::StatusOr<Json> state = ReadJsonFile(folder->File(kStateFile));
  if (state.ok() && state->is_object() && state->value("key", "") == key) {
    folder->state_ = *std::move(state);
  } else {
    folder->RemoveSpillFiles();
    folder->state_ = Json{{"key", key}};
  }
  return folder;
}

WorkFolder::~WorkFolder() { close(lock_fd_); }

const Json* WorkFolder::Finished(const std::string& phase) const {
  const auto it = state_.find(phase);
  return it == state_.end() ? nullptr : &*it;
}

absl::Status WorkFolder::Finish(const std::string& phase, Json result,
                                std::initializer_list<SpillFile*> files) {
  for (SpillFile* file : files) FORETOKEN_RETURN_IF_ERROR(file->Sync());
  state_[phase] = std::move(result);
  return WriteFileAtomically(File(kStateFile), DumpJson(state_));
}

absl::StatusOr<std::unique_ptr<SpillFile>> WorkFolder::CreateFile(
    const std::string& name) const {
  return SpillFile::Create(File(name + kSpillSuffix));
}

absl::StatusOr<std::unique_ptr<SpillFile>> WorkFolder::OpenFile(
    const std::string& name, uint64_t bytes) const {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<SpillFile> file,
                             SpillFile::Open(File(name + kSpillSuffix)));
  if (file->size() != bytes) {
    return absl::DataLossError(
        absl::StrCat(file->path(), ": ", file->size(), " bytes, want ", bytes));
  }
  return file;
}

void WorkFolder::RemoveFile(const std::string& name) const {
  std::error_code ignored;
  fs::remove(File(name + kSpillSuffix), ignored);
}

void WorkFolder::RemoveSpillFiles() const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    if (absl::EndsWith(entry.path().string(), kSpillSuffix)) {
      fs::remove(entry.path(), ignored);
    }
  }
}

void WorkFolder::RemoveAll() {
  RemoveSpillFiles();
  std::error_code ignored;
  fs::remove(File(kStateFile), ignored);
  fs::remove(File(kLockFile), ignored);
  fs::remove(path_, ignored);  // fails, as it should, where files are left
}

}  // namespace foretoken
