// foretoken-local
#include "common/rpc/run_service.h"
#include "services/local/stack.h"

int main(int argc, char** argv) {
  return foretoken::rpc::RunService<foretoken::local::LocalService>(argc, argv);
}
