#include "services/draft_worker/server.h"

#include <utility>

namespace foretoken::draft_worker {
// Registered before the server serves, so that no snapshot is missed.
DraftWorkerServer::DraftWorkerServer(const DraftServerOptions& options,
                                     std::unique_ptr<DraftEngine> engine,
                                     metrics::Registry& registry)
    : options_(options),
      metrics_(registry),
      sessions_(options.loop, std::move(engine),
                [this](const DraftSnapshot& snapshot) {
                  metrics_.OnChange(snapshot);
                }),
      drafts_(sessions_, metrics_),
      streams_({"draft_worker", options.tokenizer_fingerprint, options.streams},
               drafts_, metrics_),
      watchdog_(
          {options.loop.name, options.loop.hang_timeout,
           options.loop.hang_exit},
          [this] { return sessions_.loop().Hangs(); },
          [this](bool hangs) { metrics_.OnHang(hangs); }) {}

rpc::DraftStreams::Reactor* DraftWorkerServer::Draft(
    grpc::CallbackServerContext* context) {
  return streams_.Start(context);
}

}  // namespace foretoken::draft_worker
