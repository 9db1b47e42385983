#include "common/rpc/status.h"

#include "common/base/stopping.h"
#include "foretoken/v1/status_details.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::rpc {
namespace {

TEST(RpcStatusTest, EveryCodeAndMessageComesBack) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "what");
    const grpc::Status wire = ToGrpcStatus(status);
    EXPECT_EQ(wire.error_code(), code);
    EXPECT_EQ(FromGrpcStatus(wire), status);
  }
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST(RpcStatusTest, AServiceThatStopsIsKnownOnTheOtherSide) {
  const grpc::Status wire = ToGrpcStatus(StoppingError("the verifier"));
  EXPECT_EQ(FromGrpcStatus(wire), StoppingError("the verifier"));
  v1::StatusDetails details;
  ASSERT_TRUE(details.ParseFromString(wire.error_details()));
  EXPECT_EQ(details.code(), 14);
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(),
            "type.googleapis.com/google.rpc.ErrorInfo");
  // By its mark alone, whatever it says.
  EXPECT_FALSE(IsStopping(FromGrpcStatus(
      grpc::Status(wire.error_code(), wire.error_message()))));
}

TEST(RpcStatusTest, ACancelThatIsNotTheClientsIsAStopOrTheDeadline) {
  const grpc::Status cancelled(grpc::StatusCode::CANCELLED, "Cancelled");
  EXPECT_EQ(StatusOfCall(cancelled, true, absl::Minutes(1)).code(),
            absl::StatusCode::kCancelled);
  EXPECT_TRUE(IsStopping(StatusOfCall(cancelled, false, absl::Minutes(1))));
  EXPECT_TRUE(
      IsStopping(StatusOfCall(cancelled, false, absl::InfiniteDuration())));
  EXPECT_TRUE(IsStopping(StatusOfCall(cancelled, false, kDeadlineSlack)));
  for (const absl::Duration left : {kDeadlineSlack - absl::Milliseconds(1),
                                    absl::ZeroDuration(), -absl::Seconds(1)}) {
    EXPECT_EQ(StatusOfCall(cancelled, false, left).code(),
              absl::StatusCode::kDeadlineExceeded);
  }
  // Any other status is the server's.
  const grpc::Status full(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
  EXPECT_EQ(StatusOfCall(full, false, absl::ZeroDuration()),
            absl::ResourceExhaustedError("full"));
}

TEST(RpcStatusTest, ARetryHintTravelsAsGoogleRpcRetryInfo) {
  const absl::Status status = WithRetryAfter(
      absl::ResourceExhaustedError("full"), absl::Milliseconds(1250));
  const grpc::Status wire = ToGrpcStatus(status);

  v1::StatusDetails details;
  ASSERT_TRUE(details.ParseFromString(wire.error_details()));
  EXPECT_EQ(details.code(), 8);
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(),
            "type.googleapis.com/google.rpc.RetryInfo");
  EXPECT_EQ(RetryAfter(FromGrpcStatus(wire)), absl::Milliseconds(1250));
}

TEST(RpcStatusTest, NoHintAndBrokenDetailsGiveNone) {
  EXPECT_EQ(RetryAfter(absl::ResourceExhaustedError("full")), std::nullopt);
  const grpc::Status broken(grpc::StatusCode::UNAVAILABLE, "x", "\xff\xff\xff");
  EXPECT_EQ(FromGrpcStatus(broken), absl::UnavailableError("x"));
}

}  // namespace
}  // namespace foretoken::rpc
