#include "services/trie_drafter/server.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert_draft.h"
#include "common/rpc/status.h"

namespace foretoken::trie_drafter {
namespace {

constexpr char kService[] = "trie_drafter";
// Maximum phrase calls, waiting and running.
constexpr int kMaxCalls = 256;

int Threads(int32_t threads) {
  return threads > 0
             ? threads
             : std::max(1,
                        static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

// The order of the members: the store reports to the metrics, sessions write to
// the store, and workers run the sessions' work, so each is destroyed before
// what it uses.
TrieDrafterServer::TrieDrafterServer(const TrieServerOptions& options,
                                     const TrieOptions& core,
                                     std::shared_ptr<const StaticPrior> prior,
                                     const MakeStore& make_store,
                                     metrics::Registry& registry)
    : options_(options),
      metrics_(registry),
      store_(make_store(metrics_)),
      sessions_(core, std::move(prior), store_.get(), metrics_),
      // Room for the queued work of all streams and calls.
      // max_streams bounds the streams and each queues one piece of work at
      // most; calls have kMaxCalls places besides. Submit then never finds the
      // queue full.
      workers_(Threads(options.threads),
               options.streams.max_streams + kMaxCalls),
      queued_(sessions_, workers_),
      drafts_(queued_, metrics_),
      streams_({kService, options.tokenizer_fingerprint, options.streams},
               drafts_, metrics_) {}

TrieDrafterServer::~TrieDrafterServer() = default;

rpc::DraftStreams::Reactor* TrieDrafterServer::Draft(
    grpc::CallbackServerContext* context) {
  return streams_.Start(context);
}

grpc::ServerUnaryReactor* TrieDrafterServer::GetPhrases(
    grpc::CallbackServerContext* context, const v1::GetPhrasesRequest* request,
    v1::GetPhrasesResponse* response) {
  return RunCall(context, [this, request, response]() -> absl::Status {
    FORETOKEN_RETURN_IF_ERROR(CheckCacheScope(request->cache_scope()));
    const std::string& fingerprint = request->tokenizer_fingerprint();
    FORETOKEN_RETURN_IF_ERROR(rpc::CheckFingerprint(fingerprint));
    // Phrases are token ids: those of another tokenizer would mean other text.
    // An empty fingerprint is unknown and passes.
    if (!options_.tokenizer_fingerprint.empty() && !fingerprint.empty() &&
        fingerprint != options_.tokenizer_fingerprint) {
      return absl::FailedPreconditionError(
          "tokenizer_fingerprint: the request's tokenizer is not that of "
          "trie_drafter");
    }
    // Bounds the answer, and the time that the scope's lock is held to copy it.
    const int32_t max = request->max_phrases();
    if (max < 1 || max > rpc::kMaxPhrasesPerMessage) {
      return absl::InvalidArgumentError(absl::StrCat(
          "max_phrases: ", max, ", want 1..", rpc::kMaxPhrasesPerMessage));
    }
    if (request->phrase_tokens() < 0 ||
        request->phrase_tokens() > rpc::kMaxPhraseTokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("phrase_tokens: ", request->phrase_tokens(),
                       ", want 0..", rpc::kMaxPhraseTokens));
    }
    rpc::ToProto(sessions_.NewestPhrases({request->cache_scope(), fingerprint,
                                          request->phrase_tokens(), max}),
                 response->mutable_phrases());
    return absl::OkStatus();
  });
}

// Bounds the calls before they are queued: the pool's queue has room for
// kMaxCalls besides the work of all streams, which calls never displace.
grpc::ServerUnaryReactor* TrieDrafterServer::RunCall(
    grpc::CallbackServerContext* context, std::function<absl::Status()> work) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  absl::Status refused;
  // Add first, then compare: two calls that come at once could both pass a test
  // made before.
  if (draining_) {
    refused = absl::UnavailableError("trie_drafter is draining");
  } else if (calls_.fetch_add(1) >= kMaxCalls) {
    --calls_;
    refused = absl::ResourceExhaustedError("trie_drafter is overloaded");
  } else {
    refused = workers_.Submit([this, reactor, run = std::move(work)] {
      const grpc::Status status = rpc::ToGrpcStatus(run());
      // Before Finish: once the client has its answer, it may call again, and a
      // call that is counted still would be refused.
      --calls_;
      reactor->Finish(status);
    });
    if (!refused.ok()) --calls_;
  }
  if (absl::IsResourceExhausted(refused)) {
    refused = rpc::WithRetryAfter(refused, options_.streams.retry_after);
  }
  if (!refused.ok()) reactor->Finish(rpc::ToGrpcStatus(refused));
  return reactor;
}

void TrieDrafterServer::BeginDrain() {
  draining_ = true;
  streams_.BeginDrain();
}

bool TrieDrafterServer::Idle() const {
  return streams_.Idle() && calls_.load() == 0;
}

void TrieDrafterServer::EndAll() { streams_.EndAll(); }

}  // namespace foretoken::trie_drafter
