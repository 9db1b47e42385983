// foretoken-draft-worker
#include "common/rpc/run_service.h"
#include "services/draft_worker/config.h"

int main(int argc, char** argv) {
  return foretoken::rpc::RunService<
      foretoken::draft_worker::DraftWorkerService>(argc, argv);
}
