#include "tests/integration/fake_drafters.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/drafting/prompt_lookup.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/sync_stream.h"

namespace foretoken::testing {
namespace {

constexpr int kHugeNodes = 1000000;

template <typename Ids>
std::vector<TokenId> TokensOf(const Ids& ids) {
  return std::vector<TokenId>(ids.begin(), ids.end());
}

// What the drafter says, spoiled as `behaviour` wants it.
void FillTree(Behaviour behaviour, Drafter& drafter, int max_nodes,
              v1::TokenTree* proto) {
  DraftTree tree;
  if (max_nodes > 0) drafter.Draft(max_nodes, tree);
  // Past the end of every tree, however long this one is.
  if (behaviour == Behaviour::kBadParents) tree.Add(3, tree.size() + 7, 0.5f);
  if (behaviour == Behaviour::kBadIds) {
    tree.Add(-5, -1, 0.9f);
    tree.Add(1 << 30, -1, 0.9f);
  }
  while (behaviour == Behaviour::kHuge && tree.size() < kHugeNodes) {
    tree.Add(tree.size() % 7, tree.size() - 1, 0.5f);
  }
  proto->mutable_tokens()->Add(tree.tokens.begin(), tree.tokens.end());
  proto->mutable_parents()->Add(tree.parents.begin(), tree.parents.end());
  proto->mutable_probabilities()->Add(tree.probs.begin(), tree.probs.end());
}

// What ends a stream at once, whatever was asked.
grpc::Status Failure(Behaviour behaviour) {
  if (behaviour == Behaviour::kRefuses) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
  }
  if (behaviour == Behaviour::kFails) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "down");
  }
  if (behaviour == Behaviour::kForeign) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "foreign");
  }
  return grpc::Status::OK;
}

}  // namespace

template <typename Base>
class FakeDrafters::DraftService : public Base {
 public:
  explicit DraftService(FakeDrafters& fakes) : fakes_(fakes) {}

  grpc::Status Draft(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::DraftResponse, v1::DraftRequest>* stream)
      override {
    ++fakes_.opened_;
    ++fakes_.open_;
    const grpc::Status status = Serve(stream);
    --fakes_.open_;
    return status;
  }

 private:
  grpc::Status Serve(
      grpc::ServerReaderWriter<v1::DraftResponse, v1::DraftRequest>* stream) {
    PromptLookupDrafter drafter{PromptLookupOptions()};
    int64_t length = 0;
    int rounds = 0;
    v1::DraftRequest request;
    while (stream->Read(&request)) {
      const Behaviour behaviour = fakes_.behaviour_;
      if (!Failure(behaviour).ok()) return Failure(behaviour);
      if (request.has_open()) {
        length = request.open().token_ids_size();
        drafter.StartRequest(TokensOf(request.open().token_ids()));
        continue;
      }
      const v1::DraftRound& round = request.round();
      length += round.committed_size();
      const bool forgets = behaviour == Behaviour::kForgets && rounds > 0;
      if (forgets || round.committed_length() != length) {
        return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "reopen");
      }
      ++rounds;
      ++fakes_.rounds_;
      drafter.Commit(TokensOf(round.committed()));
      fakes_.phrases_ += round.pool().inserted_size();
      if (behaviour == Behaviour::kHung) continue;
      if (behaviour == Behaviour::kSlow) absl::SleepFor(kSlowness);
      if (behaviour == Behaviour::kHeld) fakes_.gate_.Pass();
      v1::DraftResponse response;
      response.set_committed_length(length +
                                    (behaviour == Behaviour::kStale ? 1 : 0));
      FillTree(behaviour, drafter, round.max_nodes(), response.mutable_tree());
      response.mutable_pool()->add_inserted()->add_tokens(1);
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

  FakeDrafters& fakes_;
};

class FakeDrafters::TrieService final
    : public DraftService<v1::TrieDrafter::Service> {
 public:
  using DraftService::DraftService;

  grpc::Status GetPhrases(grpc::ServerContext*, const v1::GetPhrasesRequest*,
                          v1::GetPhrasesResponse* response) override {
    v1::Phrase* phrase = response->add_phrases();
    phrase->add_tokens(1);
    phrase->add_tokens(2);
    return grpc::Status::OK;
  }
};

class FakeDrafters::CrestService final : public v1::Crest::Service {
 public:
  explicit CrestService(FakeDrafters& fakes) : fakes_(fakes) {}

  grpc::Status Lookup(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::CrestLookupResponse, v1::CrestLookupRequest>*
          stream) override {
    ++fakes_.opened_;
    ++fakes_.open_;
    const grpc::Status status = Serve(stream);
    --fakes_.open_;
    return status;
  }

 private:
  grpc::Status Serve(grpc::ServerReaderWriter<v1::CrestLookupResponse,
                                              v1::CrestLookupRequest>* stream) {
    v1::CrestLookupRequest request;
    int rounds = 0;
    while (stream->Read(&request)) {
      const Behaviour behaviour = fakes_.behaviour_;
      if (!Failure(behaviour).ok()) return Failure(behaviour);
      if (behaviour == Behaviour::kForgets && rounds++ > 0) {
        return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "reopen");
      }
      if (behaviour == Behaviour::kHung) continue;
      if (behaviour == Behaviour::kSlow) absl::SleepFor(kSlowness);
      if (behaviour == Behaviour::kHeld) fakes_.gate_.Pass();
      v1::CrestLookupResponse response;
      response.set_sequence(request.sequence() +
                            (behaviour == Behaviour::kStale ? 1 : 0));
      PromptLookupDrafter drafter{PromptLookupOptions()};
      drafter.StartRequest(TokensOf(request.context()));
      FillTree(behaviour, drafter, request.max_nodes(),
               response.mutable_tree());
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

  FakeDrafters& fakes_;
};

FakeDrafters::FakeDrafters(const std::string& address)
    : trie_(std::make_unique<TrieService>(*this)),
      worker_(std::make_unique<DraftService<v1::DraftWorker::Service>>(*this)),
      crest_(std::make_unique<CrestService>(*this)) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  for (grpc::Service* service : {trie_.get(), worker_.get(), crest_.get()}) {
    builder.RegisterService(service);
  }
  server_ = builder.BuildAndStart();
  FORETOKEN_CHECK(server_ != nullptr);
  address_ = absl::StrCat("127.0.0.1:", port);
}

FakeDrafters::~FakeDrafters() {
  server_->Shutdown(std::chrono::system_clock::now());
}

}  // namespace foretoken::testing
