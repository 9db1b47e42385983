// CacheScopes: ties the cache scopes that requests name to their callers.
//
// Within a scope requests share text: prefix pages, histories, phrase pools. A
// caller who learns or guesses the name of another's scope must not share it,
// so the scope of an authenticated caller is a keyed hash (HMAC-SHA256) of
// caller and name. Without authentication a name stays as it is, and everybody
// who knows it shares the scope.
//
// Scopes of prefix pages alone have names of their own kind. They are always
// hashed, so that no cache scope can be given the name of one. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_CACHE_SCOPES_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_CACHE_SCOPES_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/generation/generation.h"

namespace foretoken::orchestrator {

class CacheScopes {
 public:
  static constexpr size_t kMinKeyBytes = 32;

  // Reads the key from a file, which all orchestrators of a deployment share.
  // Without one ("") the key is random, and scopes end with the process.
  // NotFound, or InvalidArgument for a key shorter than kMinKeyBytes.
  static absl::StatusOr<CacheScopes> Load(const std::string& key_file);

  // The scope in which the caller's requests that name `scope` share text;
  // empty if `scope` is empty.
  std::string Effective(const Caller& caller, absl::string_view scope) const;
  // The same for the name of a scope of prefix pages (prefix_scope).
  std::string EffectiveOfPages(const Caller& caller,
                               absl::string_view scope) const;

 private:
  explicit CacheScopes(std::string key) : key_(std::move(key)) {}

  std::string key_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_CACHE_SCOPES_H_
