#include "services/orchestrator/core/admission/cache_scopes.h"

#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"

namespace foretoken::orchestrator {
namespace {

constexpr uint64_t kMaxKeyFileBytes = 4096;

std::string RandomKey() {
  std::random_device device;
  std::string key;
  while (key.size() < CacheScopes::kMinKeyBytes) {
    key.push_back(static_cast<char>(device()));
  }
  return key;
}

}  // namespace

absl::StatusOr<CacheScopes> CacheScopes::Load(const std::string& key_file) {
  if (key_file.empty()) return CacheScopes(RandomKey());
  FORETOKEN_ASSIGN_OR_RETURN(const std::string text,
                             ReadFile(key_file, kMaxKeyFileBytes));
  const absl::string_view key = absl::StripAsciiWhitespace(text);
  if (key.size() < kMinKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(key_file, ": a key of ", key.size(),
                     " bytes, want at least ", kMinKeyBytes));
  }
  return CacheScopes(std::string(key));
}

std::string CacheScopes::Effective(const Caller& caller,
                                   absl::string_view scope) const {
  // An unauthenticated caller's name proves nothing, so its scopes are shared
  // by all who know their names.
  if (scope.empty() || !caller.authenticated) return std::string(scope);
  // The length makes the pair unambiguous.
  return HexDigest(HmacSha256(
      key_, absl::StrCat(caller.name.size(), ":", caller.name, scope)));
}

std::string CacheScopes::EffectiveOfPages(const Caller& caller,
                                          absl::string_view scope) const {
  if (scope.empty()) return "";
  // Effective hashes texts that begin with a digit, so none of its scopes is
  // one of these; "-" is no caller's length.
  const std::string owner =
      caller.authenticated ? absl::StrCat(caller.name.size(), ":", caller.name)
                           : "-:";
  return HexDigest(HmacSha256(key_, absl::StrCat("pages:", owner, scope)));
}

}  // namespace foretoken::orchestrator
