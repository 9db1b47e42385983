#include "common/drafting/crest/snapshot_header.h"

#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "xxhash.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

enum class Kind : uint8_t { kFirst = 0, kSecond = 1 };

struct ToyMeta {
  uint16_t width = 0;
  Kind kind = Kind::kFirst;
  uint64_t count = 0;
};

struct ToyFormat {
  using Meta = ToyMeta;
  static constexpr char kMagic[] = "TOYFILE1";
  static constexpr char kName[] = "toy header";
  static constexpr char kFile[] = "a toy of format 1";

  template <typename Fields, typename Visit>
  static void VisitFields(Fields& meta, Visit&& visit) {
    visit(meta.width);
    visit(meta.kind);
    visit(meta.count);
  }
};
using ToyHeader = SnapshotHeader<ToyFormat>;

std::string Encoded() {
  return ToyHeader::Encode({0x0102, Kind::kSecond, 0x0a0b0c});
}

TEST(SnapshotHeaderTest, IsMagicFieldsInOrderAndChecksum) {
  const std::string bytes = Encoded();
  const std::string covered("TOYFILE1\x02\x01\x01\x0c\x0b\x0a\0\0\0\0\0", 19);
  EXPECT_EQ(bytes.substr(0, 19), covered);
  EXPECT_EQ(FromLittleEndian(AsBytes(bytes).subspan(19)),
            XXH3_64bits(covered.data(), covered.size()));
  EXPECT_EQ(ToyHeader::Bytes(), 19u + 8u);
  EXPECT_EQ(bytes.size(), ToyHeader::Bytes());
}

TEST(SnapshotHeaderTest, DecodesWhatItEncodedAndIgnoresWhatFollows) {
  const std::string bytes = Encoded() + "contents";
  const auto meta = ToyHeader::Decode(AsBytes(bytes));
  FORETOKEN_ASSERT_OK(meta);
  EXPECT_EQ(meta->width, 0x0102);
  EXPECT_EQ(meta->kind, Kind::kSecond);
  EXPECT_EQ(meta->count, 0x0a0b0cu);
}

TEST(SnapshotHeaderTest, RefusesEveryFlippedBitByTheNameOfTheHeader) {
  const std::string bytes = Encoded();
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    const char* const want = bit < 8 * kHeaderMagicBytes
                                 ? "toy header: not a toy of format 1"
                                 : "toy header: checksum differs";
    EXPECT_THAT(ToyHeader::Decode(AsBytes(damaged)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(want)))
        << "bit " << bit;
  }
}

TEST(SnapshotHeaderTest, RefusesEveryShorterHeader) {
  const std::string bytes = Encoded();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(ToyHeader::Decode(AsBytes(bytes).first(size)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("bytes, want 27")))
        << size;
  }
}

TEST(PackedTokensTest, IdsTakeTwoBytesWhileTheVocabularyAllowsIt) {
  EXPECT_EQ(PackedTokenBytes(1), 2);
  EXPECT_EQ(PackedTokenBytes(0x10000), 2);
  EXPECT_EQ(PackedTokenBytes(0x10001), 3);
  EXPECT_EQ(PackedTokenBytes(kMaxPackedVocabSize), 3);
}

TEST(PackedTokensTest, AreLittleEndianAndComeBack) {
  EXPECT_EQ(PackTokens({0x0102, 0xffff}, 2), "\x02\x01\xff\xff");
  EXPECT_EQ(PackTokens({0x010203}, 3), "\x03\x02\x01");
  for (const int width : {2, 3}) {
    const std::vector<TokenId> tokens = {0, 255, 256, 0xffff};
    const std::string bytes = PackTokens(tokens, width);
    EXPECT_EQ(bytes.size(), tokens.size() * static_cast<size_t>(width));
    EXPECT_EQ(UnpackTokens(AsBytes(bytes), width), tokens);
  }
  EXPECT_THAT(UnpackTokens(AsBytes("\xff\xff\xff"), 3), ElementsAre(0xffffff));
  EXPECT_THAT(UnpackTokens({}, 3), IsEmpty());
}

}  // namespace
}  // namespace foretoken
