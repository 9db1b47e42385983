// ScriptedServer: a server of the public API that does what a test says.
// Thread-safe.
#ifndef FORETOKEN_TESTS_SUPPORT_SCRIPTED_GENERATION_SERVER_H_
#define FORETOKEN_TESTS_SUPPORT_SCRIPTED_GENERATION_SERVER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/auth.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace foretoken::testing {

// What a server says of a model with this name.
inline v1::GetModelInfoResponse InfoOf(const std::string& model) {
  v1::GetModelInfoResponse info;
  info.set_model(model);
  info.set_max_positions(100);
  info.add_modes("off");
  info.add_modes("auto");
  info.set_tokenizer_fingerprint("print");
  return info;
}

class ScriptedServer final : public v1::Generation::Service {
 public:
  ScriptedServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~ScriptedServer() override {
    // Calls that wait for their client to cancel are ended.
    server_->Shutdown(std::chrono::system_clock::now());
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  void SetInfo(grpc::Status status, v1::GetModelInfoResponse info) {
    absl::MutexLock lock(&mu_);
    info_status_ = std::move(status);
    info_ = std::move(info);
  }
  void CheckPrincipals(bool check) {
    absl::MutexLock lock(&mu_);
    checks_principals_ = check;
  }
  // Every call: these texts as deltas, with a result if `result`, then
  // `status`; if `endless`, it then waits for its client to cancel instead.
  struct Script {
    std::vector<std::string> texts;
    bool result = true;
    bool endless = false;
    grpc::Status status = {};
  };
  void SetScript(Script script) {
    absl::MutexLock lock(&mu_);
    script_ = std::move(script);
  }
  // The principal that the last call named; "-" if it named none.
  std::string principal() const {
    absl::MutexLock lock(&mu_);
    return principal_;
  }
  v1::GenerateRequest request() const {
    absl::MutexLock lock(&mu_);
    return request_;
  }
  // Calls of Generate that have written all that they write.
  int written() const {
    absl::MutexLock lock(&mu_);
    return written_;
  }

  grpc::Status GetModelInfo(grpc::ServerContext* context,
                            const v1::GetModelInfoRequest*,
                            v1::GetModelInfoResponse* response) override {
    absl::MutexLock lock(&mu_);
    if (checks_principals_ && !IsName(PrincipalOf(*context))) {
      return {grpc::StatusCode::UNAUTHENTICATED, "not a name"};
    }
    *response = info_;
    return info_status_;
  }
  grpc::Status Generate(
      grpc::ServerContext* context, const v1::GenerateRequest* request,
      grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    Script script;
    {
      absl::MutexLock lock(&mu_);
      principal_ = PrincipalOf(*context);
      request_ = *request;
      script = script_;
    }
    for (const std::string& text : script.texts) {
      v1::GenerateResponse response;
      response.mutable_delta()->set_text(text);
      writer->Write(response);
    }
    if (script.result) {
      v1::GenerateResponse response;
      response.mutable_result()->set_finish_reason(v1::FINISH_REASON_STOP);
      response.mutable_result()->set_seed(9);
      writer->Write(response);
    }
    {
      absl::MutexLock lock(&mu_);
      ++written_;
    }
    while (script.endless && !context->IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return script.status;
  }
  grpc::Status Tokenize(grpc::ServerContext* context,
                        const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    absl::MutexLock lock(&mu_);
    principal_ = PrincipalOf(*context);
    if (request->text().empty()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "text: it is empty"};
    }
    if (request->add_special_tokens()) response->add_token_ids(1);
    for (const char c : request->text()) response->add_token_ids(c);
    return grpc::Status::OK;
  }
  grpc::Status Detokenize(grpc::ServerContext* context,
                          const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override {
    absl::MutexLock lock(&mu_);
    principal_ = PrincipalOf(*context);
    if (request->token_ids().empty()) {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "busy"};
    }
    for (const int32_t id : request->token_ids()) {
      response->mutable_text()->push_back(static_cast<char>(id));
    }
    return grpc::Status::OK;
  }

 private:
  // Whether the orchestrator takes it for the name of a caller.
  static bool IsName(const std::string& principal) {
    return !absl::StrContains(principal, ' ');
  }
  static std::string PrincipalOf(const grpc::ServerContext& context) {
    const auto found = context.client_metadata().find(rpc::kPrincipalKey);
    if (found == context.client_metadata().end()) return "-";
    return {found->second.data(), found->second.size()};
  }

  int port_ = 0;
  mutable absl::Mutex mu_;
  grpc::Status info_status_ ABSL_GUARDED_BY(mu_);
  v1::GetModelInfoResponse info_ ABSL_GUARDED_BY(mu_);
  bool checks_principals_ ABSL_GUARDED_BY(mu_) = false;
  Script script_ ABSL_GUARDED_BY(mu_);
  std::string principal_ ABSL_GUARDED_BY(mu_);
  v1::GenerateRequest request_ ABSL_GUARDED_BY(mu_);
  int written_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_SCRIPTED_GENERATION_SERVER_H_
