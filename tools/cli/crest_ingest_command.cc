// foretoken crest ingest: sends a corpus to a crest service, which builds a
// version of a datastore from it and serves that.
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/drafting/corpus_reader.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "foretoken/v1/crest.grpc.pb.h"
#include "tools/cli/command.h"
#include "tools/cli/server_channel.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

struct IngestFlags {
  std::string server;
  std::string server_token_file;
  ServerFlags access;
  std::string datastore;
  CorpusOptions corpus;
  int max_n = 0;
  int top = 0;
  double timeout = 600;
};

// Reads everything and keeps nothing: memory stays that of one document.
absl::Status CheckCorpus(const CorpusOptions& options) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<CorpusReader> corpus,
                             CorpusReader::Open(options));
  CorpusDocument document;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, corpus->Next(document));
    if (!more) return absl::OkStatus();
  }
}

absl::Status Ingest(const IngestFlags& flags) {
  // A whole pass before the call, so that a corpus with a bad row is never
  // published in part.
  FORETOKEN_RETURN_IF_ERROR(CheckCorpus(flags.corpus));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<CorpusReader> corpus,
                             CorpusReader::Open(flags.corpus));
  rpc::ChannelOptions options = ChannelOf(flags.access);
  options.token_file = flags.server_token_file;
  FORETOKEN_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                             rpc::CreateChannel(flags.server, options));
  FORETOKEN_ASSIGN_OR_RETURN(const rpc::BearerToken token,
                             rpc::ReadToken(options));
  const auto stub = v1::Crest::NewStub(channel);
  grpc::ClientContext context;
  rpc::PrepareCall(context, MonotonicNow() + absl::Seconds(flags.timeout),
                   token.Get());
  v1::IngestResponse response;
  const auto writer = stub->Ingest(&context, &response);
  v1::IngestRequest request;
  request.mutable_config()->set_datastore(flags.datastore);
  request.mutable_config()->set_max_n(flags.max_n);
  request.mutable_config()->set_top(flags.top);
  // Blocking calls suffice: gRPC's flow control slows the reader down to the
  // speed of the service.
  // A refused write ends the loop; Finish says why.
  bool open = writer->Write(request);
  CorpusDocument document;
  while (open) {
    const absl::StatusOr<bool> more = corpus->Next(document);
    if (!more.ok()) {
      // Cancelled, not half-closed: the service would take the end of the
      // stream for the end of the corpus and publish a part.
      context.TryCancel();  // the file has changed
      writer->Finish();
      return more.status();
    }
    if (!*more) break;
    request.set_document(document.text);
    open = writer->Write(request);
  }
  // After a refused write this does nothing; it is still needed before Finish
  // in the good case.
  writer->WritesDone();
  FORETOKEN_RETURN_IF_ERROR(rpc::FromGrpcStatus(writer->Finish()));
  return WriteJson({{"version", response.version()},
                    {"documents", response.documents()},
                    {"tokens", response.tokens()}});
}

}  // namespace

void AddCrestIngestCommand(Command crest) {
  const auto [command, flags] = crest.AddCommand<IngestFlags>(
      "ingest",
      "Have a crest service build and serve a version of a corpus, such as "
      "the outputs of `prior grow --text-out`; replaces what it served",
      Ingest);
  command
      .Add("--server", flags.server,
           "Address of a crest service with --enable-ingest: HOST:PORT "
           "or unix:/PATH")
      .Required();
  command.Add("--server-token-file", flags.server_token_file,
              "File with the bearer token to send");
  AddServerFlags(command, flags.access);
  command
      .Add("--corpus", flags.corpus.paths,
           "JSONL (fields output, text, prompt), text files, folders "
           "of sources; gzip or plain")
      .Required();
  command.Add("--datastore", flags.datastore,
              "Its name there; default: the first");
  command
      .Add("--max-n", flags.max_n,
           "n-grams of 1..N tokens; 0: the service's default")
      .NonNegative();
  command
      .Add("--top", flags.top,
           "n-grams kept per length; 0: the service's default")
      .NonNegative();
  command.Add("--timeout", flags.timeout, "Deadline in seconds")
      .InRange(1.0, 86400.0);
}

}  // namespace foretoken::cli
