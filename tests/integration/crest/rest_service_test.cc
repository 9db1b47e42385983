// The crest service with REST snapshots, over real gRPC.
#include "tests/lab/rest_service/rest_service.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/server.h"
#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/orchestrator/config.h"
#include "services/verifier/config.h"
#include "tests/integration/cluster.h"
#include "tests/integration/crest/crest_service.h"
#include "tests/lab/rest/rest_drafter.h"
#include "tests/lab/rest/rest_snapshot.h"
#include "tests/lab/rest_service/rest_origin.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kEnough = uint64_t{1} << 30;

class RestServiceTest : public ::testing::Test {
 protected:
  std::string path() const { return dir_.File("x.crest"); }

  static std::vector<crest::NamedOrigin> RestOrigins(const std::string& name,
                                                     const std::string& file) {
    std::vector<crest::NamedOrigin> origins;
    origins.push_back(
        {name, std::make_unique<crest::RestOrigin>(file, kEnough), true});
    return origins;
  }

  TempDir dir_;
};

// A snapshot as `foretoken-lab build-rest` writes it, beside one of n-grams.
TEST_F(RestServiceTest, ServesRestAsReplayDraftsIt) {
  std::string text;
  for (const char* words :
       {"the hen in the inn ", "a man in the den ", "the men and the hen "}) {
    for (int i = 0; i < 30; ++i)
      text += std::string(words) + (i % 3 ? "" : "x");
  }
  const std::string tokenizer_path =
      dir_.Write("tokenizer.json", TinyTokenizerJson());
  const std::string rest = dir_.File("x.rest");
  const std::string command =
      absl::StrCat(FORETOKEN_LAB_BINARY, " build-rest --corpus ",
                   dir_.Write("corpus.txt", text), " --tokenizer ",
                   tokenizer_path, " --out ", rest, " > /dev/null 2>&1");
  ASSERT_EQ(std::system(command.c_str()), 0);
  const auto tokenizer = Tokenizer::Load(tokenizer_path);
  FORETOKEN_ASSERT_OK(tokenizer);
  std::vector<TokenId> tokens = (*tokenizer)->Encode(text);
  if ((*tokenizer)->eos_token() >= 0) {
    tokens.push_back((*tokenizer)->eos_token());
  }
  RestDrafter drafter(std::make_shared<const RestStore>(*RestStore::Create(
                          tokens, (*tokenizer)->vocab_size())),
                      RestOptions());
  CrestSample sample = MakeCrestSample(1, 100, 50);
  sample.meta.tokenizer_fingerprint = (*tokenizer)->fingerprint();
  WriteSnapshot(path(), sample);
  crest::CrestService options;
  options.datastores = {"chat=" + path()};
  options.tokenizer = tokenizer_path;
  const auto service = StartCrest(options, RestOrigins("base", rest));
  LookupClient client(*service);
  std::mt19937 random(1);
  int64_t nodes = 0;
  int longest = 0;
  for (int i = 0; i < 300; ++i) {
    const size_t end = 20 + random() % (tokens.size() - 20);
    std::vector<TokenId> context(
        tokens.begin() + static_cast<int64_t>(end) - 16,
        tokens.begin() + static_cast<int64_t>(end));
    // Shorter matches too.
    context[random() % context.size()] = static_cast<TokenId>(random() % 50);
    const int max_nodes = 1 + static_cast<int>(random() % 64);
    v1::CrestLookupRequest request = LookupRequest(context, max_nodes);
    request.set_datastore("base");
    const auto response = client.Ask(request);
    FORETOKEN_ASSERT_OK(response);
    drafter.StartRequest(context);
    DraftTree want;
    drafter.Draft(max_nodes, want);
    const v1::TokenTree& got = response->tree();
    ASSERT_EQ(std::vector<TokenId>(got.tokens().begin(), got.tokens().end()),
              want.tokens);
    ASSERT_EQ(std::vector<int32_t>(got.parents().begin(), got.parents().end()),
              want.parents);
    ASSERT_EQ(response->n() > 0, want.size() > 0);
    nodes += want.size();
    longest = std::max(longest, response->n());
  }
  EXPECT_GT(nodes, 300);
  EXPECT_GT(longest, 8);  // longer than any stored n-gram
  EXPECT_GT(service->Sample("foretoken_crest_lookups_total{result=\"hit_8\"}"),
            0);
  v1::ListVersionsResponse versions;
  grpc::ClientContext context;
  v1::ListVersionsRequest list;
  list.set_datastore("base");
  ASSERT_TRUE(service->stub->ListVersions(&context, list, &versions).ok());
  ASSERT_EQ(versions.versions_size(), 1);
  EXPECT_EQ(versions.versions(0).ngrams(), static_cast<int64_t>(tokens.size()));
  EXPECT_TRUE(service->Serving("foretoken.v1.Crest/base"));

  metrics::Registry registry;
  crest::RestService lab;
  lab.crest = options;
  lab.snapshots = {"base=" + rest};
  FORETOKEN_EXPECT_OK(lab.Make(registry));
  lab.snapshots = {"base=" + path()};
  EXPECT_THAT(lab.Make(registry), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("not a REST snapshot")));
  lab.snapshots = {"base="};
  EXPECT_THAT(lab.Make(registry), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("want NAME=FILE")));
  lab.snapshots = {"chat=" + rest};
  EXPECT_THAT(lab.Make(registry), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("named twice")));
  options.datastores = {"base=" + rest};
  EXPECT_FALSE(options.Make(registry).ok());
}

constexpr int kVocab = 72;  // of the golden models
constexpr int kMaxTokens = 90;
constexpr int kPrompts = 3;

struct Outputs {
  std::vector<std::vector<TokenId>> tokens;
  int64_t accepted = 0;
  int64_t rounds = 0;
  int64_t degraded = 0;
};

Outputs Generate(const WireClient& client, const std::string& mode,
                 float temperature) {
  Outputs outputs;
  for (int i = 0; i < kPrompts; ++i) {
    v1::GenerateRequest request =
        MakeRequest(MakePrompt(i, 20, kVocab), mode, kMaxTokens);
    request.set_ignore_eos(true);
    request.mutable_sampling()->set_seed(i);
    request.mutable_sampling()->set_temperature(temperature);
    const Generated got = Generate(client, request);
    FORETOKEN_EXPECT_OK(got.status);
    outputs.tokens.push_back(got.tokens);
    outputs.accepted += got.result.speculation().accepted_tokens();
    outputs.rounds += got.result.speculation().rounds();
    for (const auto& by : got.result.speculation().by_drafter()) {
      outputs.degraded += by.degraded_rounds();
    }
  }
  return outputs;
}

// The store holds what the target writes, so that drafts are accepted.
TEST_F(RestServiceTest, RestThroughCrestWritesWhatOffWrites) {
  verifier::VerifierService target;
  target.backend.model = SourcePath("tests/golden/models/llama_plain_fp32");
  target.backend.precision = "fp32";
  target.backend.threads = 1;
  target.draft_guard = false;  // nothing here is about time
  metrics::Registry registry;
  const auto verifier = target.Make(registry);
  FORETOKEN_ASSERT_OK(verifier);
  rpc::ServerOptions listen;
  listen.listen = {"127.0.0.1:0"};
  const auto server = rpc::Server::Start(listen, {verifier->get()});
  FORETOKEN_ASSERT_OK(server);
  orchestrator::OrchestratorService config;
  config.verifiers = {(*server)->addresses().at(0)};
  config.server.draft_wait.floor = absl::Seconds(30);
  config.server.draft_wait.cap = absl::Seconds(30);

  Outputs off;
  Outputs sampled;
  {
    const auto plain = StartOrchestrator(config);
    off = Generate(*plain->client, "off", 0.0f);
    sampled = Generate(*plain->client, "off", 0.8f);
  }
  std::vector<TokenId> text;
  for (const auto& tokens : off.tokens) {
    text.insert(text.end(), tokens.begin(), tokens.end());
  }
  RestMeta meta;
  meta.vocab_size = kVocab;
  const std::string store = dir_.File("store.rest");
  FORETOKEN_ASSERT_OK(WriteRestSnapshot(store, meta, text));
  WriteSnapshot(path(), MakeCrestSample(5, 60, kVocab));
  crest::CrestService datastores;
  datastores.datastores = {"chat=" + path()};
  const auto crest = StartCrest(datastores, RestOrigins("base", store));
  config.drafters["crest"] = {crest->server->addresses().at(0)};
  const auto drafted = StartOrchestrator(config);
  const Outputs got = Generate(*drafted->client, "crest:datastore=base", 0.0f);
  EXPECT_EQ(got.tokens, off.tokens);
  EXPECT_GT(got.accepted, got.rounds);
  EXPECT_EQ(got.degraded, 0);
  EXPECT_EQ(Generate(*drafted->client, "crest:datastore=base", 0.8f).tokens,
            sampled.tokens);
}

}  // namespace
}  // namespace foretoken::testing
