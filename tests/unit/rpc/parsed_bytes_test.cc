#include "common/rpc/parsed_bytes.h"

#include <string>

#include "foretoken/v1/generation.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::rpc {
namespace {

template <typename Message>
int64_t Bound(const std::string& wire) {
  const grpc::Slice slice(wire);
  return ParsedBytes(*Message::descriptor(), grpc::ByteBuffer(&slice, 1));
}

// The message's own accounting, which leaves out what growing lists copy.
template <typename Message>
int64_t Actual(const std::string& wire) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(wire));
  return static_cast<int64_t>(message.SpaceUsedLong());
}

template <typename Message>
void ExpectBounded(const std::string& wire, int64_t most_per_byte) {
  const int64_t bound = Bound<Message>(wire);
  EXPECT_GE(bound, Actual<Message>(wire));
  EXPECT_LE(bound, 16384 + most_per_byte * static_cast<int64_t>(wire.size()));
}

TEST(ParsedBytesTest, ATextCountsOnce) {
  v1::GenerateRequest request;
  request.set_text(std::string(1 << 20, 'a'));
  ExpectBounded<v1::GenerateRequest>(request.SerializeAsString(), 1);
}

TEST(ParsedBytesTest, SmallIdsAreAListOfWholeNumbers) {
  v1::DetokenizeRequest ids;
  ids.mutable_token_ids()->Resize(1 << 20, 5);
  ExpectBounded<v1::DetokenizeRequest>(ids.SerializeAsString(), 12);
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Resize(1 << 20, 5);
  ExpectBounded<v1::GenerateRequest>(request.SerializeAsString(), 12);
}

TEST(ParsedBytesTest, EmptyStringsCostAnObjectEach) {
  v1::GenerateRequest request;
  for (int i = 0; i < 10000; ++i) request.add_stop();
  ExpectBounded<v1::GenerateRequest>(request.SerializeAsString(), 90);
}

TEST(ParsedBytesTest, UnknownFieldsAreCounted) {
  std::string numbers, groups;
  for (int i = 0; i < 10000; ++i) {
    numbers += std::string("\xf8\x7d\x00", 3);  // field 2015, 0
    groups += "\xfb\x7d\xfc\x7d";               // field 2015, empty
  }
  ExpectBounded<v1::GenerateRequest>(numbers, 60);
  ExpectBounded<v1::GenerateRequest>(groups, 90);
}

TEST(ParsedBytesTest, NestedMessagesAreCountedByTheirFields) {
  v1::GenerateRequest request;
  request.mutable_sampling()->set_temperature(1);
  request.mutable_speculation()->mutable_crest()->set_datastore("x");
  EXPECT_GE(Bound<v1::GenerateRequest>(request.SerializeAsString()),
            static_cast<int64_t>(request.SpaceUsedLong()));
}

TEST(ParsedBytesTest, BrokenMessagesHaveABoundToo) {
  v1::GenerateRequest request;
  request.set_text("some text");
  request.mutable_token_ids();
  const std::string wire = request.SerializeAsString();
  for (size_t cut = 0; cut <= wire.size(); ++cut) {
    EXPECT_GT(Bound<v1::GenerateRequest>(wire.substr(0, cut)), 0) << cut;
  }
  EXPECT_GT(Bound<v1::GenerateRequest>("\x0a\xff\xff\xff\xff\xff\x7f"), 0);
  EXPECT_GT(Bound<v1::GenerateRequest>(std::string(1000, '\xff')), 0);
}

}  // namespace
}  // namespace foretoken::rpc
