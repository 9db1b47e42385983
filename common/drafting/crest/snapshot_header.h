// Headers of snapshot files, and the packed token ids that follow them: of CREST
// datastores, and of the laboratory's REST stores.
//
// A header is a magic of 8 bytes, the fields of the file's metadata in a fixed
// order, little-endian, and the XXH3 of everything before it.
// Thread-safe: functions without state.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_SNAPSHOT_HEADER_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_SNAPSHOT_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/bytes.h"
#include "common/base/status_macros.h"
#include "common/base/types.h"

namespace foretoken {

inline constexpr size_t kHeaderMagicBytes = 8;

// Appends the checksum of `header`.
void SealHeader(std::string& header);

// InvalidArgument, beginning with `name`, if fewer than `want` bytes are left
// or the magic ("not `file`") or the checksum differs.
absl::Status CheckHeader(absl::Span<const uint8_t> bytes, size_t want,
                         absl::string_view magic, absl::string_view name,
                         absl::string_view file);

// `Format` describes a kind of file:
//   struct Format {
//     using Meta = ...;
//     static constexpr char kMagic[] = "8 bytes, the zero not counted";
//     static constexpr char kName[] = "what messages call the header";
//     static constexpr char kFile[] = "what messages call the file";
//     // Visits the fields in file order. Any change of them changes the
//     // format, whose number is part of kMagic.
//     template <typename Meta, typename Visit>
//     static void VisitFields(Meta& meta, Visit&& visit);
//   };
template <typename Format>
class SnapshotHeader {
 public:
  using Meta = typename Format::Meta;
  static_assert(sizeof(Format::kMagic) == kHeaderMagicBytes + 1);

  static size_t Bytes() {
    static const size_t bytes = Encode(Meta()).size();
    return bytes;
  }

  static std::string Encode(const Meta& meta) {
    std::string out(Format::kMagic, kHeaderMagicBytes);
    Format::VisitFields(
        meta, [&](const auto& field) { AppendLittleEndian(field, out); });
    SealHeader(out);
    return out;
  }

  // Leaves the ranges of the fields to the caller.
  static absl::StatusOr<Meta> Decode(absl::Span<const uint8_t> bytes) {
    FORETOKEN_RETURN_IF_ERROR(CheckHeader(bytes, Bytes(), Format::kMagic,
                                          Format::kName, Format::kFile));
    Meta meta;
    size_t at = kHeaderMagicBytes;
    Format::VisitFields(meta, [&](auto& field) {
      using Field = std::remove_reference_t<decltype(field)>;
      field = static_cast<Field>(
          FromLittleEndian(bytes.subspan(at, sizeof(Field))));
      at += sizeof(Field);
    });
    return meta;
  }
};

// Limit of the formats: ids are packed into at most 3 bytes.
inline constexpr int64_t kMaxPackedVocabSize = (1 << 24) - 1;

// Bytes of an id.
constexpr int PackedTokenBytes(uint32_t vocab_size) {
  return vocab_size <= 0x10000 ? 2 : 3;
}

// The ids, little-endian, `width` bytes each.
std::string PackTokens(absl::Span<const TokenId> tokens, int width);
// `bytes` holds a whole number of ids.
std::vector<TokenId> UnpackTokens(absl::Span<const uint8_t> bytes, int width);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_SNAPSHOT_HEADER_H_
