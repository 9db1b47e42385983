// Bearer tokens: authentication of callers.
//
// A token file has one token per line:
//
//   TOKEN [NAME] [weight=W] [requests=N] [requests_per_minute=N]
//         [tokens_per_minute=N] [speaks_for_others]
//
// NAME identifies the caller in logs, limits and metrics; tokens with one name
// share an account. A token without one has its own, and is `other` in metrics
// like all callers without a name, so NAME may not be `other`. W (0.01..100,
// default 1) is the account's share of a busy server, `requests` (default: the
// service's) its limit of running requests; the other two are its quotas of
// requests and of tokens, prompt and output (default: none), in each
// orchestrator. `speaks_for_others` is for a gateway, which has authenticated
// its callers itself: its calls may name another caller (kPrincipalKey), whose
// account they then use; a call for what cannot be a name is refused. Blank
// lines and lines that begin with `#` are skipped. A server reloads the file
// when it changes; an invalid file is logged, and the old tokens stay valid.
//
// The presented token is hashed and compared with every known hash in constant
// time, so that neither its bytes nor its position leak.
#ifndef FORETOKEN_COMMON_RPC_AUTH_H_
#define FORETOKEN_COMMON_RPC_AUTH_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/reloaded_file.h"
#include "common/generation/generation.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/server_context.h"

namespace foretoken::rpc {

// Metadata that names the caller for which a call is made. Ignored unless the
// call's own token may speak for others.
inline constexpr char kPrincipalKey[] = "foretoken-principal";

// The callers of a token file. Thread-safe.
class Callers {
 public:
  static constexpr size_t kMinTokenBytes = 16;
  static constexpr size_t kMaxTokens = 1000;
  static constexpr size_t kMaxNameBytes = 64;

  // InvalidArgument names file and line of a token that is too short, of an
  // attribute that is unknown, out of range, or differs from another line's for
  // the same name, of a token without a name whose account another line has,
  // too, and a file without any token; it never repeats a token.
  static absl::StatusOr<std::shared_ptr<const Callers>> Load(
      const std::string& path, Clock clock = MonotonicClock());

  // The caller with this token; nullopt if none. `authorization`: the header's
  // value, "Bearer <token>".
  std::optional<Caller> Find(absl::string_view authorization) const;
  // The same for a call that is made for `principal`: its account, if the token
  // may speak for others. A name without an account here is an authenticated
  // caller without limits of its own; a string that cannot be a name gives
  // nullopt.
  std::optional<Caller> Find(absl::string_view authorization,
                             absl::string_view principal) const;

  // Calls refused because they carried no known token.
  void CountStranger() const {
    strangers_.fetch_add(1, std::memory_order_relaxed);
  }
  int64_t strangers() const {
    return strangers_.load(std::memory_order_relaxed);
  }

 private:
  struct Known {
    Sha256Digest digest;
    Caller caller;
    bool speaks_for_others = false;
  };

  Callers(const std::string& path, Clock clock)
      : known_(path, Read, std::move(clock)) {}
  static absl::StatusOr<std::vector<Known>> Read(const std::string& path);

  mutable ReloadedFile<std::vector<Known>> known_;
  mutable std::atomic<int64_t> strangers_{0};
};

// Lets a call through if it carries a known token or is a health check, else
// ends it with UNAUTHENTICATED, which is logged within bounds. Runs before any
// handler.
std::shared_ptr<grpc::AuthMetadataProcessor> MakeBearerProcessor(
    std::shared_ptr<const Callers> callers);

// The caller of a call: by its token if there is a token file, else by the
// subject of the client's certificate, else by its address (PeerName).
Caller CallerOf(const grpc::ServerContextBase& context, const Callers* callers);

// The token of a client's token file: that of its first token line, so that
// client and server can share a file to which a new token is added.
absl::StatusOr<std::string> LoadClientToken(const std::string& path);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_AUTH_H_
