#include "common/infer/safetensors.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr size_t kMaxTensorName = 512;

struct DataType {
  const char* name;
  uint64_t bytes;
};
// Types that the engine does not compute in are known too: their sizes are
// needed to validate the file, and such a tensor may be one that is not used.
constexpr DataType kDataTypes[] = {
    {"F32", 4}, {"F16", 2},     {"BF16", 2},    {"F64", 8}, {"I64", 8},
    {"I32", 4}, {"I16", 2},     {"I8", 1},      {"U64", 8}, {"U32", 4},
    {"U16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U8", 1},  {"BOOL", 1}};

std::optional<uint64_t> DataTypeBytes(const std::string& name) {
  for (const DataType& type : kDataTypes) {
    if (name == type.name) return type.bytes;
  }
  return std::nullopt;
}

// A name from the file, escaped and truncated for messages.
std::string Printable(const std::string& name) {
  constexpr size_t kShown = 120;
  return absl::CEscape(name.size() <= kShown ? name
                                             : name.substr(0, kShown) + "...");
}

absl::StatusOr<Json> ParseHeader(absl::string_view text) {
  // A header that names a tensor twice is ambiguous.
  absl::StatusOr<Json> header =
      ParseJson(text, {.max_depth = 8, .unique_keys = true});
  if (!header.ok()) return Annotate(header.status(), "header");
  return header;
}

// Returns a non-negative JSON integer, or nullopt.
std::optional<uint64_t> ReadUnsigned(const Json& value) {
  // Signed or fractional numbers are refused, even 1.0.
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<uint64_t>();
}

struct Entry {
  SafetensorsTensor tensor;
  uint64_t begin = 0;  // within the data section
  uint64_t end = 0;
};

absl::StatusOr<Entry> ReadEntry(const std::string& name, const Json& json) {
  Entry entry;
  entry.tensor.name = name;
  if (!json.is_object()) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  // An unknown field might change the meaning of the others.
  for (const auto& [key, unused] : json.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown field ", Printable(key)));
    }
  }
  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string()) {
    return absl::InvalidArgumentError("dtype missing or not a string");
  }
  entry.tensor.dtype = dtype->get<std::string>();
  const std::optional<uint64_t> element = DataTypeBytes(entry.tensor.dtype);
  if (!element) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown dtype ", Printable(entry.tensor.dtype)));
  }

  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array()) {
    return absl::InvalidArgumentError("shape missing or not a list");
  }
  if (shape->size() > kMaxSafetensorsRank) {
    return absl::InvalidArgumentError(absl::StrCat("shape has ", shape->size(),
                                                   " dimensions, want at most ",
                                                   kMaxSafetensorsRank));
  }
  // Both sizes come from the file: their product must not wrap around, and must
  // match the byte range.
  uint64_t bytes = *element;
  for (const Json& item : *shape) {
    const std::optional<uint64_t> dim = ReadUnsigned(item);
    if (!dim || *dim > static_cast<uint64_t>(INT64_MAX) ||
        __builtin_mul_overflow(bytes, *dim, &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", Printable(DumpJson(*shape)),
                       ", want dimensions whose product fits 64 bits"));
    }
    entry.tensor.shape.push_back(static_cast<int64_t>(*dim));
  }

  const auto offsets = json.find("data_offsets");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2 ||
      !ReadUnsigned((*offsets)[0]) || !ReadUnsigned((*offsets)[1])) {
    return absl::InvalidArgumentError(
        "data_offsets missing or not a list of two unsigned integers");
  }
  entry.begin = *ReadUnsigned((*offsets)[0]);
  entry.end = *ReadUnsigned((*offsets)[1]);
  // Both ends come from the file, so the range is compared with the shape.
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data_offsets [", entry.begin, ", ", entry.end, "], want ", bytes,
        " bytes for ", entry.tensor.dtype, " ", ShapeText(entry.tensor.shape)));
  }
  return entry;
}

// The ranges, in order, must be contiguous from 0 to `data_bytes`.
absl::Status CheckTiling(const std::vector<Entry>& entries,
                         uint64_t data_bytes) {
  // Without gaps: bytes that no tensor claims could hold anything, and two
  // files that load alike would differ.
  uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Printable(entry.tensor.name), " begins at byte ",
          entry.begin, " of the data, want ", expected,
          entry.begin < expected ? " (it overlaps the one before)"
                                 : " (there is a gap before it)"));
    }
    if (entry.end > data_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Printable(entry.tensor.name), " ends at byte ", entry.end,
          " of the data, but the file holds ", data_bytes,
          ": truncated or corrupt"));
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tensors end at byte ", expected,
                     " of the data, but the file holds ", data_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SafetensorsTensor>> Parse(
    absl::Span<const uint8_t> bytes) {
  if (bytes.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("is ", bytes.size(),
                     " bytes long, want at least the 8 of a header length"));
  }
  uint64_t header_bytes = 0;
  // Byte by byte: the field is little-endian, wherever this runs.
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  }
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("header length is ", header_bytes, ", want at most ",
                     kMaxSafetensorsHeaderBytes));
  }
  // Subtracted, since the sum may wrap.
  if (header_bytes > bytes.size() - kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("header length is ", header_bytes, ", but only ",
                     bytes.size() - kLengthBytes, " bytes follow"));
  }
  const absl::string_view text(
      reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, header_bytes);
  // The format requires this first byte.
  if (text.empty() || text.front() != '{') {
    return absl::InvalidArgumentError("header does not begin with '{'");
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Json header, ParseHeader(text));
  if (header.size() > kMaxSafetensorsTensors) {
    return absl::InvalidArgumentError(absl::StrCat("header has ", header.size(),
                                                   " entries, want at most ",
                                                   kMaxSafetensorsTensors));
  }

  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items()) {
    // Free text about the file, which changes nothing.
    if (name == "__metadata__") continue;
    if (name.empty() || name.size() > kMaxTensorName) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor name of ", name.size(), " bytes, want 1..", kMaxTensorName));
    }
    absl::StatusOr<Entry> entry = ReadEntry(name, json);
    if (!entry.ok()) {
      return Annotate(entry.status(), absl::StrCat("tensor ", Printable(name)));
    }
    entries.push_back(*std::move(entry));
  }
  // By position in the data, for CheckTiling.
  // The header is sorted by name, the data by offset.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) <
           std::tie(b.begin, b.end, b.tensor.name);
  });
  const absl::Span<const uint8_t> data =
      bytes.subspan(kLengthBytes + header_bytes);
  FORETOKEN_RETURN_IF_ERROR(CheckTiling(entries, data.size()));

  std::vector<SafetensorsTensor> tensors;
  tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.tensor.data = data.subspan(entry.begin, entry.end - entry.begin);
    tensors.push_back(std::move(entry.tensor));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<std::vector<SafetensorsTensor>> ParseSafetensors(
    absl::Span<const uint8_t> bytes, const std::string& file) {
  absl::StatusOr<std::vector<SafetensorsTensor>> tensors = Parse(bytes);
  if (!tensors.ok()) return Annotate(tensors.status(), file);
  return tensors;
}

std::string SerializeSafetensors(absl::Span<const SafetensorsSource> tensors) {
  Json header = Json::object();
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t offset = 0;
  for (const SafetensorsSource& source : tensors) {
    int64_t elements = 1;
    // The caller's own shapes; they are small.
    for (const int64_t dim : source.shape) elements *= dim;
    const uint64_t bytes =
        static_cast<uint64_t>(WeightTypeBytes(source.type, elements));
    FORETOKEN_CHECK(bytes == source.data.size());
    header[source.name] = {{"dtype", WeightTypeName(source.type)},
                           {"shape", source.shape},
                           {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = DumpJson(header);
  // Padding the header with spaces aligns the data to 8 bytes.
  // Readers map the file and use tensors in place.
  text.resize((text.size() + 7) / 8 * 8, ' ');

  std::string file;
  file.reserve(kLengthBytes + text.size() + offset);
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    file.push_back(static_cast<char>(uint64_t{text.size()} >> (8 * i)));
  }
  file += text;
  for (const SafetensorsSource& source : tensors) {
    file.append(reinterpret_cast<const char*>(source.data.data()),
                source.data.size());
  }
  return file;
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace foretoken
