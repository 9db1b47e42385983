#include "common/rpc/health.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "foretoken/v1/generation.pb.h"
#include "grpcpp/generic/generic_stub.h"

namespace foretoken::rpc {
namespace {

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
// HealthCheckResponse with field 1, `status`, at SERVING (1).
constexpr absl::string_view kServing("\x08\x01", 2);

// HealthCheckRequest has one field, number 1, a string; a message of ours with
// the same wire form stands in for it.
std::string CheckRequest(const std::string& service) {
  v1::DetokenizeResponse same_shape;
  same_shape.set_text(service);
  return same_shape.SerializeAsString();
}

std::string Bytes(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return "";
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

}  // namespace

absl::StatusOr<bool> IsServing(const std::shared_ptr<grpc::Channel>& channel,
                               const std::string& service,
                               absl::Time deadline) {
  grpc::ClientContext context;
  PrepareCall(context, deadline, "");
  const std::string bytes = CheckRequest(service);
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  auto call = stub.PrepareUnaryCall(&context, kCheck, request, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  // Blocks until the deadline at the latest. A completion queue must be drained
  // before it is destroyed.
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  if (!status.ok()) return FromGrpcStatus(status);
  return Bytes(response) == kServing;
}

}  // namespace foretoken::rpc
