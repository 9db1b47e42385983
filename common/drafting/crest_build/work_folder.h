// WorkFolder: intermediate files of a build, from which a killed build resumes
// after its last finished phase.
//
// The folder has a state file with the key of the build (a digest of everything
// that affects its result), the results of each finished phase, and length and
// digest of every file that later phases need; the state has a digest of its
// own. A state with another key is dropped and the build starts over. So is a
// damaged state, or one with damaged files, which is logged. Only files with
// the build's own names are ever removed. Owned by one thread; one process at a
// time, by a lock that ends with the process.
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
  // Creates the folder, accessible to this user only, if missing. Aborted if
  // another process is building in it, FailedPrecondition if it belongs to
  // another user. Validates the files of an earlier build, which reads all of
  // them.
  static absl::StatusOr<std::unique_ptr<WorkFolder>> Open(
      const std::string& path, const std::string& key);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  // Null if the phase is not finished.
  const Json* Finished(const std::string& phase) const;
  // Syncs `files`, records them and the phase as finished, then removes the
  // `unneeded` files.
  absl::Status Finish(const std::string& phase, Json result,
                      std::initializer_list<const SpillFile*> files,
                      std::initializer_list<const char*> unneeded = {});

  absl::StatusOr<std::unique_ptr<SpillFile>> CreateFile(
      const std::string& name) const;
  // Opens a file of a finished phase.
  absl::StatusOr<std::unique_ptr<SpillFile>> OpenFile(
      const std::string& name) const;

  // Removes the files of the build, and the folder if it is otherwise empty.
  void RemoveAll();

 private:
  WorkFolder(std::string path, int lock_fd)
      : path_(std::move(path)), lock_fd_(lock_fd) {}

  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Reads the state and validates its files. NotFound if there is none with
  // this key.
  absl::StatusOr<Json> ReadState(const std::string& key) const;
  // Removes the build's files that state_ does not name.
  void RemoveLeftovers() const;

  const std::string path_;
  const int lock_fd_;
  Json state_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_WORK_FOLDER_H_
