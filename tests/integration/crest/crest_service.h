// A crest service in this process behind TCP, and clients of it.
#ifndef FORETOKEN_TESTS_INTEGRATION_CREST_CREST_SERVICE_H_
#define FORETOKEN_TESTS_INTEGRATION_CREST_CREST_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/drafting/crest/crest_index.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "foretoken/v1/crest.grpc.pb.h"
#include "services/crest/config.h"
#include "tests/support/crest_samples.h"

namespace foretoken::testing {

struct TestCrest {
  metrics::Registry registry;
  std::unique_ptr<crest::CrestServer> service;
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<v1::Crest::Stub> stub;

  double Sample(const std::string& sample) const;
  // As a health check over the wire has it; false for an unknown name too.
  bool Serving(const std::string& name) const;
};
// Watches every few milliseconds. Dies if Make fails. `more`: as Make's.
std::unique_ptr<TestCrest> StartCrest(
    crest::CrestService options, std::vector<crest::NamedOrigin> more = {});

v1::CrestLookupRequest LookupRequest(absl::Span<const TokenId> context,
                                     int max_nodes = 64);

// One stream.
class LookupClient {
 public:
  explicit LookupClient(const TestCrest& service);
  ~LookupClient();

  bool Write(const v1::CrestLookupRequest& request) {
    return stream_->Write(request);
  }
  // The next answer, or the status that ended the stream.
  absl::StatusOr<v1::CrestLookupResponse> Read();
  absl::StatusOr<v1::CrestLookupResponse> Ask(
      const v1::CrestLookupRequest& request);
  // Half-closes, and gives the status of the stream.
  absl::Status Finish();
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::CrestLookupRequest, v1::CrestLookupResponse>>
      stream_;
  bool finished_ = false;
};

// One look-up on a stream of its own.
absl::StatusOr<v1::CrestLookupResponse> LookUp(
    const TestCrest& service, const v1::CrestLookupRequest& request);

// The answer is what `index` says of the request's context, whole and cut to
// max_nodes.
void ExpectAnswer(const CrestIndex& index,
                  const v1::CrestLookupRequest& request,
                  const v1::CrestLookupResponse& response);

CrestIndex IndexOf(const CrestSample& sample);
// Replaces the file at once, as a builder does.
void WriteSnapshot(const std::string& path, const CrestSample& sample);

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_INTEGRATION_CREST_CREST_SERVICE_H_
