#include "common/generation/generation.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace foretoken {

absl::Status CheckRequestId(absl::string_view request_id) {
  const bool good =
      std::all_of(request_id.begin(), request_id.end(), [](char c) {
        // These need no quoting in log lines, labels of traces or file names.
        return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
      });
  if (good && request_id.size() <= kMaxRequestIdBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("request_id: want at most ", kMaxRequestIdBytes,
                   " characters of A-Za-z0-9._-"));
}

absl::Status CheckCacheScope(absl::string_view cache_scope,
                             absl::string_view field) {
  // Bytes, not characters: a scope is an opaque key, of which the limit bounds
  // the memory.
  if (cache_scope.size() <= kMaxCacheScopeBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", cache_scope.size(), " bytes, want at most ",
                   kMaxCacheScopeBytes));
}

}  // namespace foretoken
