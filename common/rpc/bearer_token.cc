#include "common/rpc/bearer_token.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/file_version.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/auth.h"

namespace foretoken::rpc {

struct BearerToken::File {
  std::string path;
  Clock clock;
  absl::Mutex mu;
  std::string token ABSL_GUARDED_BY(mu);
  FileVersion version ABSL_GUARDED_BY(mu);
  absl::Time looked ABSL_GUARDED_BY(mu);
};

absl::StatusOr<BearerToken> BearerToken::Load(const std::string& path,
                                              Clock clock) {
  BearerToken token;
  token.file_ = std::make_shared<File>();
  File& file = *token.file_;
  file.path = path;
  file.clock = std::move(clock);
  absl::MutexLock lock(&file.mu);
  file.version = FileVersion::Of(path);
  file.looked = file.clock();
  FORETOKEN_ASSIGN_OR_RETURN(file.token, LoadClientToken(path));
  return token;
}

std::string BearerToken::Get() const {
  if (file_ == nullptr) return "";
  File& file = *file_;
  absl::MutexLock lock(&file.mu);
  const absl::Time now = file.clock();
  if (now < file.looked + kReloadInterval) return file.token;
  file.looked = now;
  const FileVersion version = FileVersion::Of(file.path);
  if (version == file.version) return file.token;
  file.version = version;
  absl::StatusOr<std::string> token = LoadClientToken(file.path);
  if (token.ok()) {
    file.token = *std::move(token);
  } else {
    FORETOKEN_LOG(kError,
                  "the token from before stays: ", token.status().message());
  }
  return file.token;
}

}  // namespace foretoken::rpc
