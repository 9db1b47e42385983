#include "services/orchestrator/adapters/remote_services.h"

#include <utility>

#include "services/orchestrator/adapters/remote_crest.h"
#include "services/orchestrator/adapters/remote_drafter.h"

namespace foretoken::orchestrator {

RemoteServices::RemoteServices(const RemoteServicesOptions& options,
                               std::string tokenizer_fingerprint,
                               metrics::Registry& registry)
    : options_(options),
      tokenizer_fingerprint_(std::move(tokenizer_fingerprint)) {
  const auto peer = [&](const char* name,
                        const std::optional<DraftEndpoint>& endpoint) {
    return endpoint.has_value()
               ? std::make_unique<DraftPeer>(name, *endpoint, options.breaker,
                                             registry)
               : nullptr;
  };
  trie_peer_ = peer("trie_drafter", options.trie_drafter);
  worker_peer_ = peer("draft_worker", options.draft_worker);
  crest_peer_ = peer("crest", options.crest);
  if (trie_peer_ != nullptr) {
    trie_ = v1::TrieDrafter::NewStub(trie_peer_->channel());
  }
  if (worker_peer_ != nullptr) {
    worker_ = v1::DraftWorker::NewStub(worker_peer_->channel());
  }
  if (crest_peer_ != nullptr) {
    crest_ = v1::Crest::NewStub(crest_peer_->channel());
  }
}

std::unique_ptr<DraftSource> RemoteServices::TrieDrafter(DrafterId id,
                                                         const Mode& mode) {
  if (options_.trie_here.has_value()) {
    return std::make_unique<SessionSource>(id, mode, tokenizer_fingerprint_,
                                           *options_.trie_here, absl::Now);
  }
  RemoteDrafter::Options drafter;
  drafter.id = id;
  drafter.mode = mode;
  drafter.tokenizer_fingerprint = tokenizer_fingerprint_;
  drafter.method = [this](grpc::ClientContext* context,
                          RemoteDrafter::Call::Reactor* reactor) {
    trie_->async()->Draft(context, reactor);
  };
  return std::make_unique<RemoteDrafter>(std::move(drafter), *trie_peer_);
}

std::unique_ptr<DraftSource> RemoteServices::PhraseKeeper(const Mode& mode) {
  RemoteDrafter::Options drafter;
  drafter.id = DrafterId::kOuroboros;
  drafter.drafts = false;
  drafter.mode = mode;
  drafter.tokenizer_fingerprint = tokenizer_fingerprint_;
  drafter.method = [this](grpc::ClientContext* context,
                          RemoteDrafter::Call::Reactor* reactor) {
    trie_->async()->Draft(context, reactor);
  };
  return std::make_unique<RemoteDrafter>(std::move(drafter), *trie_peer_);
}

std::unique_ptr<DraftSource> RemoteServices::DraftWorker(DrafterId id,
                                                         const Mode& mode) {
  RemoteDrafter::Options drafter;
  drafter.id = id;
  drafter.needs_rows = id == DrafterId::kOuroboros;
  drafter.mode = mode;
  drafter.tokenizer_fingerprint = tokenizer_fingerprint_;
  drafter.method = [this](grpc::ClientContext* context,
                          RemoteDrafter::Call::Reactor* reactor) {
    worker_->async()->Draft(context, reactor);
  };
  const auto* ouroboros = mode.As<OuroborosOptions>();
  if (ouroboros != nullptr && ouroboros->warm_start && has_trie_drafter()) {
    drafter.warm_start = [this, beta = ouroboros->beta](
                             const std::string& cache_scope,
                             PhraseFetch::Done done) {
      v1::GetPhrasesRequest request;
      request.set_cache_scope(cache_scope);
      request.set_max_phrases(options_.warm_phrases);
      request.set_phrase_tokens(beta);
      request.set_tokenizer_fingerprint(tokenizer_fingerprint_);
      return PhraseFetch::Start(*trie_, *trie_peer_, request, std::move(done));
    };
  }
  return std::make_unique<RemoteDrafter>(std::move(drafter), *worker_peer_);
}

std::unique_ptr<DraftSource> RemoteServices::Crest(
    const std::string& datastore) {
  RemoteCrest::Options crest;
  crest.datastore = datastore.empty() ? options_.crest_datastore : datastore;
  crest.tokenizer_fingerprint = tokenizer_fingerprint_;
  crest.method = [this](grpc::ClientContext* context,
                        RemoteCrest::Call::Reactor* reactor) {
    crest_->async()->Lookup(context, reactor);
  };
  return std::make_unique<RemoteCrest>(std::move(crest), *crest_peer_);
}

}  // namespace foretoken::orchestrator
