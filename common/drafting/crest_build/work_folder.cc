#include "common/drafting/crest_build/work_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

constexpr char kStateFile[] = "crest-build.json";
constexpr char kLockFile[] = "crest-build.lock";
constexpr char kSpillSuffix[] = ".crest-spill";

std::string NameOf(const SpillFile& file) {
  return fs::path(file.path()).filename().string();
}

std::string StateDigest(const Json& state) {
  return HexDigest(Sha256().Update(DumpJson(state)).Finish());
}

// The folder's contents determine the result of the build, so no other user may
// write to it.
absl::Status MakeOwnFolder(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  std::error_code error;
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat(parent.string(), ": create"));
  }
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": create"));
  }
  struct stat info;
  // Not stat: a link is refused, since its target may be exchanged.
  if (lstat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": stat"));
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": not a folder"));
  }
  if (info.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": belongs to user ", info.st_uid, ", want a folder of user ",
        geteuid(), " for a build's intermediate files"));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": writable by other users"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkFolder>> WorkFolder::Open(
    const std::string& path, const std::string& key) {
  FORETOKEN_RETURN_IF_ERROR(MakeOwnFolder(path));
  absl::StatusOr<int> lock = OpenLocked(absl::StrCat(path, "/", kLockFile));
  if (absl::IsAborted(lock.status())) {
    return absl::AbortedError(
        absl::StrCat(path, ": another build is running in this folder"));
  }
  FORETOKEN_RETURN_IF_ERROR(lock.status());
  std::unique_ptr<WorkFolder> folder(new WorkFolder(path, *lock));
  // A damaged state, or one of another build, costs time and nothing else: the
  // build starts over.
  absl::StatusOr<Json> state = folder->ReadState(key);
  if (state.ok()) {
    folder->state_ = *std::move(state);
  } else {
    if (!absl::IsNotFound(state.status())) {
      FORETOKEN_LOG(kWarning, path, ": the build starts over: ",
                    std::string(state.status().message()));
    }
    folder->state_ = Json{
        {"key", key}, {"phases", Json::object()}, {"files", Json::object()}};
  }
  folder->RemoveLeftovers();
  return folder;
}

WorkFolder::~WorkFolder() { close(lock_fd_); }

absl::StatusOr<Json> WorkFolder::ReadState(const std::string& key) const {
  FORETOKEN_ASSIGN_OR_RETURN(Json stored, ReadJsonFile(File(kStateFile)));
  const auto damaged = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(kStateFile, ": ", what));
  };
  if (!stored.is_object() || !stored.contains("state") ||
      !stored.contains("digest")) {
    return damaged("not a build's state");
  }
  Json& state = stored["state"];
  // A state with a valid digest was written by this code, so its fields exist.
  if (stored["digest"] != Json(StateDigest(state))) {
    return damaged("checksum differs");
  }
  if (state["key"] != Json(key)) {
    return absl::NotFoundError(absl::StrCat(path_, ": of another build"));
  }
  // Checks the contents, too: a file that was edited, or that a crash left
  // half written, must not get into the datastore.
  for (const auto& [name, wanted] : state["files"].items()) {
    FORETOKEN_ASSIGN_OR_RETURN(const auto file, SpillFile::Open(File(name)));
    if (file->size() != wanted.at(0).get<uint64_t>()) {
      return damaged(absl::StrCat(name, " has ", file->size(), " bytes, want ",
                                  wanted.at(0).get<uint64_t>()));
    }
    FORETOKEN_ASSIGN_OR_RETURN(const uint64_t digest, file->Digest());
    if (digest != wanted.at(1).get<uint64_t>()) {
      return damaged(absl::StrCat(name, ": checksum differs"));
    }
  }
  return std::move(state);
}

const Json* WorkFolder::Finished(const std::string& phase) const {
  const Json& phases = state_.at("phases");
  const auto it = phases.find(phase);
  return it == phases.end() ? nullptr : &*it;
}

absl::Status WorkFolder::Finish(const std::string& phase, Json result,
                                std::initializer_list<const SpillFile*> files,
                                std::initializer_list<const char*> unneeded) {
  for (const SpillFile* file : files) {
    // On disk before the state names it.
    FORETOKEN_RETURN_IF_ERROR(file->Sync());
    FORETOKEN_ASSIGN_OR_RETURN(const uint64_t digest, file->Digest());
    state_["files"][NameOf(*file)] = {file->size(), digest};
  }
  for (const char* name : unneeded) {
    state_["files"].erase(absl::StrCat(name, kSpillSuffix));
  }
  state_["phases"][phase] = std::move(result);
  // The state file is the commit point: the phase counts once it is renamed.
  const Json stored = {{"digest", StateDigest(state_)}, {"state", state_}};
  FORETOKEN_RETURN_IF_ERROR(
      WriteFileAtomically(File(kStateFile), DumpJson(stored)));
  // Remove the unneeded files only after the state on disk no longer names
  // them.
  RemoveLeftovers();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SpillFile>> WorkFolder::CreateFile(
    const std::string& name) const {
  return SpillFile::Create(File(name + kSpillSuffix));
}

absl::StatusOr<std::unique_ptr<SpillFile>> WorkFolder::OpenFile(
    const std::string& name) const {
  return SpillFile::Open(File(name + kSpillSuffix));
}

void WorkFolder::RemoveLeftovers() const {
  const Json& files = state_.at("files");
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    const std::string name = entry.path().filename().string();
    // Temporary files of WriteFileAtomically that a killed process left.
    const bool half_state =
        absl::StartsWith(name, absl::StrCat(kStateFile, "."));
    const bool spill =
        absl::EndsWith(name, kSpillSuffix) && !files.contains(name);
    if (half_state || spill) fs::remove(entry.path(), ignored);
  }
}

void WorkFolder::RemoveAll() {
  state_["files"] = Json::object();
  RemoveLeftovers();
  std::error_code ignored;
  fs::remove(File(kStateFile), ignored);
  fs::remove(File(kLockFile), ignored);
  fs::remove(path_, ignored);  // fails, as intended, if other files are left
}

}  // namespace foretoken
