#include "common/rpc/bearer_token.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/rpc/auth.h"

namespace foretoken::rpc {

absl::StatusOr<BearerToken> BearerToken::Load(const std::string& path,
                                              Clock clock) {
  BearerToken token;
  token.file_ = std::make_shared<ReloadedFile<std::string>>(
      path, LoadClientToken, std::move(clock));
  FORETOKEN_RETURN_IF_ERROR(token.file_->Load());
  return token;
}

std::string BearerToken::Get() const {
  return file_ == nullptr ? "" : *file_->Get();
}

}  // namespace foretoken::rpc
