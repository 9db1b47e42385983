// foretoken-verifier
#include "common/rpc/run_service.h"
#include "services/verifier/config.h"

int main(int argc, char** argv) {
  return foretoken::rpc::RunService<foretoken::verifier::VerifierService>(argc,
                                                                          argv);
}
