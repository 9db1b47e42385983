#include "common/rpc/channel.h"

#include <string>

#include "gmock/gmock.h"
#include "grpcpp/test/client_context_test_peer.h"
#include "grpcpp/test/server_context_test_spouse.h"
#include "gtest/gtest.h"

namespace foretoken::rpc {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr char kIds[] = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";

std::string Received(const std::string& header) {
  grpc::ServerContext context;
  grpc::testing::ServerContextTestSpouse peer(&context);
  peer.AddClientMetadata("traceparent", header);
  return TraceparentOf(context);
}

TEST(TraceparentTest, ALaterVersionArrivesAsVersionZero) {
  const std::string ids = kIds;
  EXPECT_EQ(Received("00-" + ids + "-01"), "00-" + ids + "-01");
  EXPECT_EQ(Received("01-" + ids + "-01"), "00-" + ids + "-01");
  EXPECT_EQ(Received("01-" + ids + "-00-\x80"), "00-" + ids + "-00");
  EXPECT_EQ(Received("01-" + ids + "-ff-more"), "00-" + ids + "-01");
  EXPECT_EQ(Received("00-" + ids + "-00-\x80"), "");
  EXPECT_EQ(Received("nonsense"), "");
  grpc::ServerContext without;
  EXPECT_EQ(TraceparentOf(without), "");
}

TEST(TraceparentTest, NothingOfTheCallersBytesIsSent) {
  const std::string ids = kIds;
  const auto sent = [](const std::string& header) {
    grpc::ClientContext context;
    AddTraceparent(context, header);
    return grpc::testing::ClientContextTestPeer(&context)
        .GetSendInitialMetadata();
  };
  EXPECT_THAT(sent("01-" + ids + "-00-\x80"),
              UnorderedElementsAre(Pair("traceparent", "00-" + ids + "-00")));
  for (const char* bad : {"", "\x80", "nonsense"}) {
    EXPECT_THAT(sent(bad), IsEmpty());
  }
}

}  // namespace
}  // namespace foretoken::rpc
