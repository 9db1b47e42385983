// What every service exports is what the catalog says of it.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/metrics/catalog.h"
#include "common/metrics/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/crest/adapters/crest_metrics.h"
#include "services/draft_worker/adapters/draft_metrics.h"
#include "services/gateway/adapters/gateway_metrics.h"
#include "services/orchestrator/config.h"
#include "services/trie_drafter/adapters/trie_metrics.h"
#include "services/verifier/adapters/engine_metrics.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

using ::testing::UnorderedElementsAreArray;

// The metric families of a /metrics page.
std::vector<std::string> Families(const metrics::Registry& registry) {
  std::vector<std::string> families;
  const std::string page = registry.Text();
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() == 4 && words[1] == "TYPE") families.push_back(words[2]);
  }
  return families;
}

std::vector<std::string> CatalogOf(const std::string& service) {
  std::vector<std::string> names;
  for (const metrics::Spec* spec : metrics::kProcessMetrics) {
    names.push_back(spec->name);
  }
  for (const metrics::Catalog& catalog : metrics::kCatalogs) {
    if (catalog.service != service) continue;
    for (const metrics::Spec* spec : catalog.metrics) {
      names.push_back(spec->name);
    }
  }
  return names;
}

TEST(CatalogTest, TheOrchestratorExportsItsCatalogAndNoOther) {
  metrics::Registry registry;
  orchestrator::OrchestratorService service;
  service.verifiers = {"127.0.0.1:1"};
  service.drafters["trie_drafter"] = {"127.0.0.1:1"};  // has a circuit breaker
  const auto made = service.Make(registry);
  FORETOKEN_ASSERT_OK(made);
  EXPECT_THAT(Families(registry),
              UnorderedElementsAreArray(CatalogOf("orchestrator")));
}

TEST(CatalogTest, TheVerifierExportsItsCatalogAndNoOther) {
  metrics::Registry registry;
  verifier::EngineMetrics exported(registry);
  EXPECT_THAT(Families(registry),
              UnorderedElementsAreArray(CatalogOf("verifier")));
}

TEST(CatalogTest, TheDraftWorkerExportsItsCatalogAndNoOther) {
  metrics::Registry registry;
  draft_worker::DraftMetrics exported(registry);
  EXPECT_THAT(Families(registry),
              UnorderedElementsAreArray(CatalogOf("draft_worker")));
}

TEST(CatalogTest, TheTrieDrafterExportsItsCatalogAndNoOther) {
  metrics::Registry registry;
  trie_drafter::TrieMetrics exported(registry);
  EXPECT_THAT(Families(registry),
              UnorderedElementsAreArray(CatalogOf("trie_drafter")));
}

TEST(CatalogTest, CrestExportsItsCatalogAndNoOther) {
  metrics::Registry registry;
  crest::CrestMetrics exported(registry, {"code"});
  EXPECT_THAT(Families(registry),
              UnorderedElementsAreArray(CatalogOf("crest")));
}

TEST(CatalogTest, TheGatewayExportsItsCatalogAndNoOther) {
  metrics::Registry registry;
  gateway::GatewayMetrics exported(registry);
  EXPECT_THAT(Families(registry),
              UnorderedElementsAreArray(CatalogOf("gateway")));
}

}  // namespace
}  // namespace foretoken::testing
