// The folder in which a build keeps its intermediate files, so that a build
// that was killed goes on after its last finished phase.
//
// The folder holds a state file with the key of the build (a digest of all that
// decides its result), what each finished phase found, and length and digest of
// every file that later phases need; the state has a digest of its own. A state
// of another key is dropped and the build starts anew; so is, with a line in
// the log, one that is damaged or whose files are. Only files of our own names
// are ever removed.
// Owned by one thread; one process at a time, by a lock that dies with it.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_WORK_FOLDER_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_WORK_FOLDER_H_

#include <initializer_list>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/json.h"
#include "common/drafting/crest_build/spill_file.h"

namespace foretoken {

class WorkFolder {
 public:
  // Makes the folder, for this user alone, where it is missing. Aborted where
  // another process builds in it, FailedPrecondition where it belongs to
  // another user. Reads what an earlier build left, to check it.
  static absl::StatusOr<std::unique_ptr<WorkFolder>> Open(
      const std::string& path, const std::string& key);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  // Null where the phase has not been finished.
  const Json* Finished(const std::string& phase) const;
  // Syncs `files`, records them and the phase as finished, then removes those
  // named `unneeded`.
  absl::Status Finish(const std::string& phase, Json result,
                      std::initializer_list<const SpillFile*> files,
                      std::initializer_list<const char*> unneeded = {});

  absl::StatusOr<std::unique_ptr<SpillFile>> CreateFile(
      const std::string& name) const;
  // A file that a finished phase left.
  absl::StatusOr<std::unique_ptr<SpillFile>> OpenFile(
      const std::string& name) const;

  // Removes what the build left, and the folder if nothing else is in it.
  void RemoveAll();

 private:
  WorkFolder(std::string path, int lock_fd)
      : path_(std::move(path)), lock_fd_(lock_fd) {}

  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // The state on disk and its files, checked. NotFound where there is none of
  // this key.
  absl::StatusOr<Json> ReadState(const std::string& key) const;
  // Removes our files that state_ does not name.
  void RemoveLeftovers() const;

  const std::string path_;
  const int lock_fd_;
  Json state_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_WORK_FOLDER_H_
