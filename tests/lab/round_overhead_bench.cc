// What a round costs beside the model's pass and the drafter's own work,
// against two raw gRPC round trips of the same message sizes, interleaved in
// one run.
//
//   bench_round_overhead [--mode=ngram_trie] [--pairs=20] [--rounds=200]
//       [verifier flags: --model DIR or --random-model SHAPE, --threads ...]
//
// The request's loop, the verifier and the trie drafter are the services' own,
// in this process: once over TCP on loopback, as separate services are, and
// once joined as in foretoken-local. Prints one JSON object;
// times in microseconds.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "common/config/flags.h"
#include "common/rpc/convert.h"
#include "common/rpc/convert_draft.h"
#include "common/rpc/draft_clients.h"
#include "common/rpc/verify_client.h"
#include "services/local/local_verifier.h"
#include "services/orchestrator/core/drafters/draft_services.h"
#include "services/orchestrator/core/round/decode_loop.h"
#include "services/orchestrator/core/verifiers/remote_verifier.h"
#include "services/trie_drafter/config.h"
#include "services/verifier/config.h"
#include "tests/integration/cluster.h"
#include "tests/lab/ping_pong.h"
#include "tests/support/metric_samples.h"

namespace foretoken::bench {
namespace {

namespace orc = ::foretoken::orchestrator;

struct BenchOptions {
  std::string mode = "ngram_trie";
  int32_t pairs = 20;
  int32_t rounds = 200;
  int32_t prompt = 400;
};

double Micros(absl::Duration time) { return absl::ToDoubleMicroseconds(time); }

double Quantile(std::vector<double> values, double q) {
  FORETOKEN_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * (values.size() - 1))];
}

// Bytes of a round's messages, averaged.
struct Sizes {
  double verify_request = 0, verify_response = 0;
  double draft_request = 0, draft_response = 0;
  int64_t rounds = 0;

  void Add(const RoundRequest& request, const RoundResult& result) {
    v1::VerifyRequest asked;
    rpc::ToProto(request, asked.mutable_round());
    v1::VerifyResponse told;
    rpc::ToProto(result, false, false, told.mutable_result());
    DraftRound round;
    round.length = result.length;
    for (const SampledToken& token : result.tokens) {
      round.committed.push_back(token.token);
    }
    round.max_nodes = 64;
    round.budget = absl::Milliseconds(20);
    v1::DraftRequest draft_asked;
    rpc::ToProto(round, draft_asked.mutable_round());
    DraftAnswer answer;
    answer.length = request.length;
    answer.tree.tokens.assign(request.tree.tokens().begin(),
                              request.tree.tokens().end());
    answer.tree.parents.assign(request.tree.parents().begin(),
                               request.tree.parents().end());
    answer.tree.probs.assign(request.tree.size(), 0.5f);
    v1::DraftResponse draft_told;
    rpc::ToProto(answer, &draft_told);
    verify_request += asked.ByteSizeLong();
    verify_response += told.ByteSizeLong();
    draft_request += draft_asked.ByteSizeLong();
    draft_response += draft_told.ByteSizeLong();
    ++rounds;
  }
  size_t Mean(double sum) const { return static_cast<size_t>(sum / rounds); }
};

// Two round trips, one after the other, as a round makes them.
class TwoRoundTrips {
 public:
  TwoRoundTrips(const Sizes& sizes, bool sockets)
      : draft_echo_(sizes.Mean(sizes.draft_response)),
        verify_echo_(sizes.Mean(sizes.verify_response)),
        draft_(draft_echo_.Channel(sockets), sizes.Mean(sizes.draft_request)),
        verify_(verify_echo_.Channel(sockets),
                sizes.Mean(sizes.verify_request)) {}

  double Time() { return Micros(draft_.RoundTrip() + verify_.RoundTrip()); }

 private:
  EchoServer draft_echo_;
  EchoServer verify_echo_;
  PingPong draft_;
  PingPong verify_;
};

// A Verifier that notes when rounds began and ended, and what passed through.
class Watch final : public orc::Verifier {
 public:
  // After every round `raw`, if any, goes there and back: in the same state of
  // the machine.
  Watch(orc::Verifier& verifier, Sizes& sizes, TwoRoundTrips* raw)
      : verifier_(verifier), sizes_(sizes), raw_(raw) {}

  absl::StatusOr<PrefillResult> Open(SessionRequest request,
                                     absl::Span<const TokenId> text) override {
    return verifier_.Open(std::move(request), text);
  }
  absl::StatusOr<RoundResult> Round(RoundRequest request,
                                    absl::Span<const TokenId> text) override {
    const RoundRequest copy = request;
    const absl::Time start = absl::Now();
    auto result = verifier_.Round(std::move(request), text);
    const absl::Time now = absl::Now();
    if (!result.ok()) return result;
    // From one answer to the next is a round.
    if (last_ != absl::InfinitePast()) {
      rounds_.push_back(Micros(now - last_));
      passes_.push_back(Micros(result->stats.pass_time));
      verify_.push_back(Micros(now - start - result->stats.pass_time));
    }
    if (raw_ != nullptr) raws_.push_back(raw_->Time());
    sizes_.Add(copy, *result);
    last_ = absl::Now();
    return result;
  }
  void Close() override { verifier_.Close(); }

  const std::vector<double>& rounds() const { return rounds_; }
  const std::vector<double>& passes() const { return passes_; }
  const std::vector<double>& raws() const { return raws_; }
  // The part of rounds() that the verifier took outside the pass.
  const std::vector<double>& verify() const { return verify_; }

 private:
  orc::Verifier& verifier_;
  Sizes& sizes_;
  TwoRoundTrips* const raw_;
  absl::Time last_ = absl::InfinitePast();
  std::vector<double> rounds_;
  std::vector<double> passes_;
  std::vector<double> raws_;
  std::vector<double> verify_;
};

// The services that a round crosses, over one kind of channel.
class Services {
 public:
  Services(const BackendOptions& backend, bool sockets) : sockets_(sockets) {
    verifier::VerifierService service;
    service.backend = backend;
    auto verifier = service.Make(verifier_registry_);
    FORETOKEN_CHECK(verifier.ok());
    verifier_ = *std::move(verifier);
    auto trie = trie_drafter::TrieDrafterService().Make(trie_registry_);
    FORETOKEN_CHECK(trie.ok());
    trie_ = *std::move(trie);
    verifier_server_ = Serve(verifier_.get());
    trie_server_ = Serve(trie_.get());
    std::shared_ptr<VerifierPeer> verifier_peer;
    orc::DraftServicesOptions options;
    if (sockets_) {
      verifier_peer = rpc::MakeVerifyClient(Connect(*verifier_server_));
      options.services["trie_drafter"]["bench"].sessions =
          rpc::MakeDraftClient(Connect(*trie_server_), "trie_drafter");
    } else {
      verifier_peer = std::make_shared<local::LocalVerifier>(*verifier_);
      options.services["trie_drafter"]["bench"].sessions =
          std::shared_ptr<DraftSessions>(std::shared_ptr<void>(),
                                         &trie_->drafts());
    }
    pool_ = std::make_unique<orc::VerifierPool>(
        orc::VerifierPoolOptions(),
        std::vector<orc::VerifierEndpoint>{{"verifier", verifier_peer}});
    drafters_ = std::make_unique<orc::DraftServices>(options, "");
  }

  // Per round of one request, outside pass and drafter; `raws`, if any, is what
  // `raw` took after each.
  std::vector<double> Overheads(const BenchOptions& options, uint64_t seed,
                                TwoRoundTrips* raw = nullptr,
                                std::vector<double>* raws = nullptr) {
    const auto info = pool_->Info();
    FORETOKEN_CHECK(info.ok());
    orc::DraftingOptions drafting;
    drafting.wait.floor = absl::Seconds(1);  // no round goes without its draft
    const auto mode = Mode::Parse(options.mode);
    FORETOKEN_CHECK(mode.ok());
    auto sources = orc::MakeSources(
        *mode, {drafters_.get(), drafting.limits, drafting.clock, nullptr});
    FORETOKEN_CHECK(sources.ok());
    drafting.economical = sources->economical;
    drafting.estimates = estimates_;
    GenerationRequest request;
    request.prompt =
        testing::MakePrompt(seed, options.prompt, info->vocab_size);
    request.max_tokens = options.rounds;
    request.ignore_eos = true;
    orc::TargetInfo target;
    target.vocab_size = info->vocab_size;
    target.max_positions = info->max_positions;
    auto loop = orc::DecodeLoop::Create(std::move(request), target, nullptr,
                                        std::move(sources->sources), drafting);
    FORETOKEN_CHECK(loop.ok());
    orc::RemoteVerifier remote({}, *pool_);
    Watch watch(remote, sizes_, raw);
    const double drafter_before = DrafterMicros();
    const int64_t rounds_before = sizes_.rounds;
    FORETOKEN_CHECK(orc::Generate(**loop, watch, [](const GenerationDelta&) {
                      return absl::OkStatus();
                    }).ok());
    remote.Close();
    const double drafter = (DrafterMicros() - drafter_before) /
                           static_cast<double>(sizes_.rounds - rounds_before);
    verify_.insert(verify_.end(), watch.verify().begin(), watch.verify().end());
    if (raws != nullptr) *raws = watch.raws();
    std::vector<double> overheads;
    for (size_t i = 0; i < watch.rounds().size(); ++i) {
      overheads.push_back(watch.rounds()[i] - watch.passes()[i] - drafter);
    }
    return overheads;
  }

  const Sizes& sizes() const { return sizes_; }
  // The verifier's part of the overhead, for all rounds so far.
  const std::vector<double>& verify() const { return verify_; }

 private:
  std::unique_ptr<rpc::Server> Serve(rpc::Servable* servable) {
    rpc::ServerOptions options;
    if (sockets_) options.listen = {"127.0.0.1:0"};
    auto server = rpc::Server::Start(options, {servable});
    FORETOKEN_CHECK(server.ok());
    return *std::move(server);
  }
  static rpc::Endpoint Connect(rpc::Server& server) {
    auto channel = rpc::CreateChannel(server.addresses().at(0), {});
    FORETOKEN_CHECK(channel.ok());
    return {*channel, {}};
  }
  double DrafterMicros() const {
    const auto seconds = metrics::SampleValue(
        trie_registry_.Text(), "foretoken_trie_draft_latency_seconds_sum");
    FORETOKEN_CHECK(seconds.ok());
    return *seconds * 1e6;
  }

  const bool sockets_;
  metrics::Registry verifier_registry_;
  metrics::Registry trie_registry_;
  std::unique_ptr<verifier::VerifierServer> verifier_;
  std::unique_ptr<trie_drafter::TrieDrafterServer> trie_;
  std::unique_ptr<rpc::Server> verifier_server_;
  std::unique_ptr<rpc::Server> trie_server_;
  std::unique_ptr<orc::VerifierPool> pool_;
  std::unique_ptr<orc::DraftServices> drafters_;
  std::shared_ptr<orc::DraftEstimates> estimates_ =
      std::make_shared<orc::DraftEstimates>();
  Sizes sizes_;
  std::vector<double> verify_;
};

Json Summary(const std::vector<double>& values) {
  return {{"p50", Quantile(values, 0.5)},
          {"p90", Quantile(values, 0.9)},
          {"p99", Quantile(values, 0.99)}};
}

Json Compare(const BenchOptions& options, const BackendOptions& backend,
             bool sockets) {
  Services services(backend, sockets);
  services.Overheads(options, 1);  // warm-up, and the sizes
  TwoRoundTrips raw(services.sizes(), sockets);
  std::vector<double> ours, theirs, ratios;
  for (int pair = 0; pair < options.pairs; ++pair) {
    std::vector<double> b;
    const std::vector<double> a =
        services.Overheads(options, 2 + pair, &raw, &b);
    ratios.push_back(Quantile(a, 0.5) / Quantile(b, 0.5));
    ours.insert(ours.end(), a.begin(), a.end());
    theirs.insert(theirs.end(), b.begin(), b.end());
  }
  const Sizes& sizes = services.sizes();
  return {
      {"round_overhead_us", Summary(ours)},
      {"verifier_part_us", Summary(services.verify())},
      {"two_round_trips_us", Summary(theirs)},
      {"ratio_of_p50",
       {{"median", Quantile(ratios, 0.5)},
        {"least", Quantile(ratios, 0.0)},
        {"most", Quantile(ratios, 1.0)}}},
      {"rounds", ours.size()},
      {"draft_bytes",
       {sizes.Mean(sizes.draft_request), sizes.Mean(sizes.draft_response)}},
      {"verify_bytes",
       {sizes.Mean(sizes.verify_request), sizes.Mean(sizes.verify_response)}}};
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  using namespace foretoken;
  bench::BenchOptions options;
  BackendOptions backend;
  backend.random_model =
      "d_model=64,layers=2,heads=4,kv_heads=2,d_ff=128,vocab=512";
  backend.threads = 1;
  Flags flags("bench_round_overhead", "The cost of a round beside its pass.");
  flags.String("mode", &options.mode, "Mode of the requests");
  flags.Int("pairs", &options.pairs, {1, 1 << 16},
            "Requests that are compared");
  flags.Int("rounds", &options.rounds, {8, 3000}, "Tokens of a request");
  backend.AddFlags(flags);
  const absl::Status parsed = flags.Parse(argc, argv);
  if (!parsed.ok()) return ExitWithError(parsed);
  const Json result = {{"mode", options.mode},
                       {"sockets", bench::Compare(options, backend, true)},
                       {"in_process", bench::Compare(options, backend, false)}};
  std::printf("%s\n", DumpJson(result).c_str());
  return 0;
}
