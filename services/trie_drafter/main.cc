// foretoken-trie-drafter
#include "common/rpc/run_service.h"
#include "services/trie_drafter/config.h"

int main(int argc, char** argv) {
  return foretoken::rpc::RunService<
      foretoken::trie_drafter::TrieDrafterService>(argc, argv);
}
