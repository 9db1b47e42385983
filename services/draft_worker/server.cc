#include "services/draft_worker/server.h"

#include <utility>

namespace foretoken::draft_worker {
namespace {

constexpr char kService[] = "draft_worker";

}  // namespace

DraftWorkerServer::DraftWorkerServer(const DraftServerOptions& options,
                                     std::unique_ptr<DraftEngine> engine,
                                     metrics::Registry& registry)
    : options_(options),
      metrics_(registry),
      thread_(options.thread, std::move(engine), &metrics_),
      // One thread for every round that may wait for the engine, so that all
      // of them can share its next pass.
      workers_(options.max_streams, options.max_streams),
      streams_({kService, options.tokenizer_fingerprint, options.max_streams,
                options.retry_after, options.first_message_time},
               thread_, workers_, metrics_) {}

rpc::DraftStreams::Reactor* DraftWorkerServer::Draft(
    grpc::CallbackServerContext* context) {
  return streams_.Start(context);
}

grpc::ServerUnaryReactor* DraftWorkerServer::GetDraftWorkerInfo(
    grpc::CallbackServerContext* context, const v1::GetDraftWorkerInfoRequest*,
    v1::GetDraftWorkerInfoResponse* response) {
  response->set_model(options_.model_name);
  response->set_vocab_size(thread_.model().vocab_size);
  response->set_max_positions(thread_.model().max_positions);
  response->set_tokenizer_fingerprint(options_.tokenizer_fingerprint);
  response->set_sessions(static_cast<int32_t>(thread_.Snapshot().sessions));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace foretoken::draft_worker
