// LocalVerifier: sessions of a verifier in this process, without its streams.
// They count like streams: toward the server's limit, in its metrics, and when
// it drains.
//
// Thread-safe.
#ifndef FORETOKEN_SERVICES_LOCAL_LOCAL_VERIFIER_H_
#define FORETOKEN_SERVICES_LOCAL_LOCAL_VERIFIER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "common/speculation/verifier_peer.h"
#include "services/verifier/server.h"

namespace foretoken::local {

class LocalVerifier final : public VerifierPeer {
 public:
  // `server` must outlive the object and its sessions.
  explicit LocalVerifier(verifier::VerifierServer& server) : server_(server) {}

  absl::StatusOr<std::unique_ptr<VerifySession>> Open(
      SessionRequest request,
      std::shared_ptr<VerifyListener> listener) override {
    FORETOKEN_RETURN_IF_ERROR(server_.AdmitStream());
    auto session = server_.sessions().Open(
        std::move(request),
        std::make_shared<Listener>(server_, std::move(listener)));
    if (!session.ok()) server_.StreamFailed(session.status().code());
    return session;
  }

  void GetInfo(absl::Time, OnInfo done) override { done(server_.Info()); }

 private:
  // The verifier releases it at the end of the session.
  class Listener final : public VerifyListener {
   public:
    Listener(verifier::VerifierServer& server,
             std::shared_ptr<VerifyListener> listener)
        : server_(server), listener_(std::move(listener)) {}
    ~Listener() override { server_.StreamDone(); }

    void OnOpened(const std::string& numerics_fingerprint) override {
      listener_->OnOpened(numerics_fingerprint);
    }
    void OnPrefilled(PrefillResult result) override {
      listener_->OnPrefilled(std::move(result));
    }
    void OnRound(RoundResult result) override {
      listener_->OnRound(std::move(result));
    }
    void OnFailed(absl::Status status) override {
      server_.StreamFailed(status.code());
      listener_->OnFailed(std::move(status));
    }

   private:
    verifier::VerifierServer& server_;
    const std::shared_ptr<VerifyListener> listener_;
  };

  verifier::VerifierServer& server_;
};

}  // namespace foretoken::local

#endif  // FORETOKEN_SERVICES_LOCAL_LOCAL_VERIFIER_H_
