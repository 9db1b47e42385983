// The drafting services in this process over real gRPC: a draft worker with a
// model of its own, a trie drafter, and a crest service with a small datastore.
#ifndef FORETOKEN_TESTS_INTEGRATION_DRAFTING_SERVICES_H_
#define FORETOKEN_TESTS_INTEGRATION_DRAFTING_SERVICES_H_

#include <memory>
#include <string>
#include <vector>

#include "services/orchestrator/config.h"
#include "tests/support/temp_dir.h"

namespace foretoken::testing {

class DraftingServices {
 public:
  // `random_model`: the shape of the draft worker's model; `tokenizer`: the
  // file of the target's. Dies if a service does not start.
  DraftingServices(const std::string& random_model,
                   const std::string& tokenizer);
  ~DraftingServices();

  // Makes an orchestrator use them; it waits for drafts as long as they take.
  void AddTo(orchestrator::OrchestratorService& config) const;

 private:
  struct Service;

  const TempDir dir_;
  std::vector<std::unique_ptr<Service>> services_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_INTEGRATION_DRAFTING_SERVICES_H_
