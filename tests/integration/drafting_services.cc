#include "tests/integration/drafting_services.h"

#include <utility>

#include "common/base/check.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "common/text/tokenizer.h"
#include "services/crest/config.h"
#include "services/draft_worker/config.h"
#include "services/trie_drafter/config.h"
#include "tests/support/crest_samples.h"

namespace foretoken::testing {
namespace {

constexpr char kDatastore[] = "chat";

void WriteDatastore(const std::string& path, const Tokenizer& tokenizer) {
  CrestSample sample = MakeCrestSample(5, 200, tokenizer.vocab_size());
  sample.meta.tokenizer_fingerprint = tokenizer.fingerprint();
  auto writer = SnapshotWriter::Create(path, sample.meta, sample.table);
  FORETOKEN_CHECK(writer.ok());
  FORETOKEN_CHECK(AddAll(sample, **writer).ok());
  FORETOKEN_CHECK((*writer)->Publish(sample.meta).ok());
}

}  // namespace

struct DraftingServices::Service {
  template <typename Options>
  Service(std::string service_name, const Options& options)
      : name(std::move(service_name)) {
    auto made = options.Make(registry);
    FORETOKEN_CHECK(made.ok());
    servable = *std::move(made);
    rpc::ServerOptions listen;
    listen.listen = {"127.0.0.1:0"};
    auto started = rpc::Server::Start(listen, {servable.get()});
    FORETOKEN_CHECK(started.ok());
    server = *std::move(started);
  }

  const std::string name;  // as the mode table has it
  metrics::Registry registry;
  std::unique_ptr<rpc::Servable> servable;
  std::unique_ptr<rpc::Server> server;
};

DraftingServices::DraftingServices(const std::string& random_model,
                                   const std::string& tokenizer) {
  draft_worker::DraftWorkerService worker;
  worker.backend.random_model = random_model;
  worker.backend.precision = "fp32";
  worker.backend.threads = 1;
  services_.push_back(std::make_unique<Service>("draft_worker", worker));
  services_.push_back(std::make_unique<Service>(
      "trie_drafter", trie_drafter::TrieDrafterService()));
  const std::string path = dir_.File("chat.crest");
  const auto loaded = Tokenizer::LoadShared(tokenizer);
  FORETOKEN_CHECK(loaded.ok());
  WriteDatastore(path, **loaded);
  crest::CrestService crest;
  crest.datastores = {std::string(kDatastore) + "=" + path};
  services_.push_back(std::make_unique<Service>("crest", crest));
}

DraftingServices::~DraftingServices() = default;

void DraftingServices::AddTo(orchestrator::OrchestratorService& config) const {
  for (const auto& service : services_) {
    config.drafters[service->name] = {service->server->addresses().at(0)};
  }
  config.server.drafters.crest_datastore = kDatastore;
  config.server.draft_wait = {100.0, absl::Seconds(30), absl::Seconds(30),
                              10.0,  absl::Seconds(30), absl::Minutes(1)};
}

}  // namespace foretoken::testing
