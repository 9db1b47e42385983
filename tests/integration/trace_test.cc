// A request's trace, from the caller's header to the collector and to the
// services that work for the request.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/rpc/channel.h"
#include "foretoken/v1/draft_worker.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/http_collector.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kCallerSpan[] = "00f067aa0ba902b7";

// The trace headers that a service was sent. Thread-safe.
class Headers {
 public:
  void Note(const grpc::CallbackServerContext& context) {
    absl::MutexLock lock(&mu_);
    headers_.insert(rpc::TraceparentOf(context));
  }
  std::set<std::string> all() const {
    absl::MutexLock lock(&mu_);
    return headers_;
  }

 private:
  mutable absl::Mutex mu_;
  std::set<std::string> headers_ ABSL_GUARDED_BY(mu_);
};

// A verifier that notes headers before it works, and a draft worker that does
// nothing else.
class NotingVerifier final : public v1::Verifier::CallbackService {
 public:
  NotingVerifier(verifier::VerifierServer& inner, Headers& headers)
      : inner_(inner), headers_(headers) {}
  grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>* Verify(
      grpc::CallbackServerContext* context) override {
    headers_.Note(*context);
    return inner_.Verify(context);
  }
  grpc::ServerUnaryReactor* GetVerifierInfo(
      grpc::CallbackServerContext* context,
      const v1::GetVerifierInfoRequest* request,
      v1::GetVerifierInfoResponse* response) override {
    return inner_.GetVerifierInfo(context, request, response);
  }

 private:
  verifier::VerifierServer& inner_;
  Headers& headers_;
};

class NotingDrafter final : public v1::DraftWorker::CallbackService {
 public:
  explicit NotingDrafter(Headers& headers) : headers_(headers) {}
  grpc::ServerBidiReactor<v1::DraftRequest, v1::DraftResponse>* Draft(
      grpc::CallbackServerContext* context) override {
    headers_.Note(*context);
    class Refused final
        : public grpc::ServerBidiReactor<v1::DraftRequest, v1::DraftResponse> {
     public:
      Refused() { Finish({grpc::StatusCode::UNAVAILABLE, "no drafts"}); }
      void OnDone() override { delete this; }
    };
    return new Refused();
  }

 private:
  Headers& headers_;
};

std::string Text(const Json& span, const char* key) {
  return span.at(key).get<std::string>();
}

TEST(RoundLineTest, SpansReachTheCollectorAndTheHeaderTheServices) {
  HttpCollector collector;
  const auto verifier = StartVerifier({});
  Headers headers;
  NotingVerifier noting(*verifier->service, headers);
  NotingDrafter drafter(headers);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&noting);
  builder.RegisterService(&drafter);
  const auto server = builder.BuildAndStart();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  {
    orchestrator::OrchestratorService config;
    config.verifiers = {address};
    config.drafters["draft_worker"] = {address};
    config.server.otlp_endpoint = collector.url();
    const auto orchestrator = StartOrchestrator(config);
    const auto call = [&](const std::string& header) {
      grpc::ClientContext context;
      context.AddMetadata("traceparent", header);
      const auto reader = orchestrator->client->stub().Generate(
          &context, MakeRequest({1, 2, 3}, "draft_model", 12));
      v1::GenerateResponse response;
      int64_t rounds = 0;
      while (reader->Read(&response)) {
        if (response.has_result())
          rounds = response.result().speculation().rounds();
      }
      EXPECT_TRUE(reader->Finish().ok());
      return rounds;
    };
    const std::string prefix = std::string("00-") + kTrace + "-";
    const int64_t rounds = call(prefix + kCallerSpan + "-01");
    EXPECT_GT(rounds, 0);
    ASSERT_TRUE(Eventually([&] { return !collector.bodies().empty(); }));

    const Json json = *ParseJson(collector.bodies()[0]);
    const Json& spans = json["resourceSpans"][0]["scopeSpans"][0]["spans"];
    std::map<std::string, int> names;
    std::string root;
    for (const Json& span : spans) {
      EXPECT_EQ(Text(span, "traceId"), kTrace);
      ++names[Text(span, "name")];
      if (span["kind"] == 2) {
        EXPECT_EQ(Text(span, "parentSpanId"), kCallerSpan);
        root = Text(span, "spanId");
      }
    }
    EXPECT_EQ(names["queue"], 1);
    EXPECT_EQ(names["prefill"], 1);
    EXPECT_EQ(names["round"], rounds);
    for (const Json& span : spans) {
      if (span["kind"] == 2) continue;
      EXPECT_EQ(Text(span, "parentSpanId"), root);
    }
    // The services are told of the request's own span.
    EXPECT_THAT(headers.all(), ::testing::ElementsAre(prefix + root + "-01"));
    EXPECT_TRUE(Eventually([&] {
      return orchestrator->Sample(
                 "foretoken_trace_spans_total{result=\"exported\"}") ==
             static_cast<double>(spans.size());
    }));

    // A trace that its caller does not record is passed on as it is, and a
    // header that is none is dropped.
    call(prefix + kCallerSpan + "-00");
    call("nonsense");
    EXPECT_THAT(headers.all(),
                ::testing::UnorderedElementsAre(
                    prefix + root + "-01", prefix + kCallerSpan + "-00", ""));
  }
  EXPECT_EQ(collector.bodies().size(), 1u);
  server->Shutdown();
}

}  // namespace
}  // namespace foretoken::testing
