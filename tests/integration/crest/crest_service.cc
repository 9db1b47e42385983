#include "tests/integration/crest/crest_service.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/rpc/health.h"
#include "common/rpc/status.h"
#include "gtest/gtest.h"
#include "tests/support/metric_samples.h"

namespace foretoken::testing {
namespace {

std::shared_ptr<grpc::Channel> Connect(const TestCrest& service) {
  auto channel = rpc::CreateChannel(service.server->addresses().at(0), {});
  FORETOKEN_CHECK(channel.ok());
  return *std::move(channel);
}

}  // namespace

double TestCrest::Sample(const std::string& sample) const {
  const absl::StatusOr<double> value =
      metrics::SampleValue(registry.Text(), sample);
  FORETOKEN_CHECK(value.ok());
  return *value;
}

bool TestCrest::Serving(const std::string& name) const {
  const auto serving =
      rpc::IsServing(Connect(*this), name, absl::Now() + absl::Minutes(1));
  return serving.ok() && *serving;
}

std::unique_ptr<TestCrest> StartCrest(crest::CrestService options,
                                      std::vector<crest::NamedOrigin> more) {
  options.server.datastores.watch_interval = absl::Milliseconds(10);
  auto result = std::make_unique<TestCrest>();
  auto service = options.Make(result->registry, std::move(more));
  FORETOKEN_CHECK(service.ok());
  result->service = *std::move(service);
  rpc::ServerOptions listen;
  listen.listen = {"127.0.0.1:0"};
  auto server = rpc::Server::Start(listen, {result->service.get()});
  FORETOKEN_CHECK(server.ok());
  result->server = *std::move(server);
  result->stub = v1::Crest::NewStub(Connect(*result));
  return result;
}

v1::CrestLookupRequest LookupRequest(absl::Span<const TokenId> context,
                                     int max_nodes) {
  v1::CrestLookupRequest request;
  request.mutable_context()->Add(context.begin(), context.end());
  request.set_max_nodes(max_nodes);
  return request;
}

LookupClient::LookupClient(const TestCrest& service) {
  rpc::PrepareCall(context_, absl::Now() + absl::Minutes(2), "");
  stream_ = service.stub->Lookup(&context_);
}

LookupClient::~LookupClient() {
  if (finished_) return;
  Cancel();
  Finish().IgnoreError();
}

absl::StatusOr<v1::CrestLookupResponse> LookupClient::Read() {
  v1::CrestLookupResponse response;
  if (stream_->Read(&response)) return response;
  absl::Status status = Finish();
  return status.ok() ? absl::OutOfRangeError("the stream has ended") : status;
}

absl::StatusOr<v1::CrestLookupResponse> LookupClient::Ask(
    const v1::CrestLookupRequest& request) {
  Write(request);  // a failure shows in the status that Read gives
  return Read();
}

absl::Status LookupClient::Finish() {
  FORETOKEN_CHECK(!finished_);
  finished_ = true;
  stream_->WritesDone();
  return rpc::FromGrpcStatus(stream_->Finish());
}

absl::StatusOr<v1::CrestLookupResponse> LookUp(
    const TestCrest& service, const v1::CrestLookupRequest& request) {
  LookupClient client(service);
  return client.Ask(request);
}

void ExpectAnswer(const CrestIndex& index,
                  const v1::CrestLookupRequest& request,
                  const v1::CrestLookupResponse& response) {
  CrestTree want;
  const int n = index.Lookup(
      {request.context().data(), static_cast<size_t>(request.context_size())},
      want);
  ASSERT_EQ(response.n(), n);
  ASSERT_EQ(response.sequence(), request.sequence());
  const v1::TokenTree& tree = response.tree();
  const int nodes = std::min(request.max_nodes(), want.size());
  ASSERT_EQ(tree.tokens_size(), nodes);
  ASSERT_EQ(tree.parents_size(), nodes);
  ASSERT_EQ(tree.probabilities_size(), nodes);
  ASSERT_EQ(response.counts_size(), nodes);
  for (int i = 0; i < nodes; ++i) {
    ASSERT_EQ(tree.tokens(i), want.tokens[i]);
    ASSERT_EQ(tree.parents(i), want.parents[i]);
    ASSERT_EQ(response.counts(i), want.counts[i]);
    ASSERT_EQ(tree.probabilities(i), static_cast<float>(want.counts[i]) /
                                         static_cast<float>(want.matches));
    const int parent = tree.parents(i);
    ASSERT_LE(tree.probabilities(i),
              parent < 0 ? 1.0f : tree.probabilities(parent));
  }
}

CrestIndex IndexOf(const CrestSample& sample) {
  auto index =
      CrestIndex::FromRecords(sample.meta, sample.table, sample.Joined());
  FORETOKEN_CHECK(index.ok());
  return *std::move(index);
}

void WriteSnapshot(const std::string& path, const CrestSample& sample) {
  auto writer = SnapshotWriter::Create(path, sample.meta, sample.table);
  FORETOKEN_CHECK(writer.ok());
  FORETOKEN_CHECK(AddAll(sample, **writer).ok());
  FORETOKEN_CHECK((*writer)->Publish(sample.meta).ok());
}

}  // namespace foretoken::testing
