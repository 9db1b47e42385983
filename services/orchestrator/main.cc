// foretoken-orchestrator
#include "common/rpc/run_service.h"
#include "services/orchestrator/config.h"

int main(int argc, char** argv) {
  return foretoken::rpc::RunService<
      foretoken::orchestrator::OrchestratorService>(argc, argv);
}
