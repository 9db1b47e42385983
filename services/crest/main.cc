// foretoken-crest
#include "common/rpc/run_service.h"
#include "services/crest/config.h"

int main(int argc, char** argv) {
  return foretoken::rpc::RunService<foretoken::crest::CrestService>(argc, argv);
}
