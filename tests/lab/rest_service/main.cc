// foretoken-lab-crest
#include "common/rpc/run_service.h"
#include "tests/lab/rest_service/rest_service.h"

int main(int argc, char** argv) {
  return foretoken::rpc::RunService<foretoken::crest::RestService>(argc, argv);
}
