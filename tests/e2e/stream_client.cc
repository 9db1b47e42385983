// A client to be killed: asks the server at argv[1] for a long text and reads
// it as fast as it comes.
#include "absl/time/time.h"
#include "tests/integration/cluster.h"
#include "tests/support/wire_client.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  if (argc != 2) return 2;
  const auto client = testing::WireClient::Connect(argv[1], {});
  if (!client.ok()) return 1;
  const auto result = (*client)->Generate(
      testing::MakeRequest({1, 2, 3}, "prompt_lookup", 1 << 19),
      absl::InfiniteFuture(), [](const v1::GenerateDelta&) { return true; });
  return result.ok() ? 0 : 1;
}
