#include "common/gguf/gguf.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/gguf/tensor_types.h"

namespace foretoken {
namespace {

// The default alignment and the maximum of dimensions are ggml's
// (GGUF_DEFAULT_ALIGNMENT, GGML_MAX_DIMS); the maximum alignment is ours.
constexpr absl::string_view kMagic = "GGUF";
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
constexpr uint32_t kMaxDimensions = 4;

// Reads front to back. Every call checks what is left first, so that no length
// of the file is trusted.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  absl::string_view rest() const { return bytes_.substr(position_); }

  absl::Status Bytes(uint64_t count, const char* what, absl::string_view& out) {
    // Subtract: count comes from the file and may be near 2^64.
    if (count > bytes_.size() - position_) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, " of ", count, " bytes at byte ", position_, ", but only ",
          bytes_.size() - position_, " follow: truncated or corrupt"));
    }
    out = bytes_.substr(position_, count);
    position_ += count;
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status Number(const char* what, T& out) {
    absl::string_view bytes;
    FORETOKEN_RETURN_IF_ERROR(Bytes(sizeof(T), what, bytes));
    // Values are unaligned in the file; little-endian, as this machine is.
    std::memcpy(&out, bytes.data(), sizeof(T));
    return absl::OkStatus();
  }

  absl::Status String(const char* what, uint64_t max, absl::string_view& out) {
    uint64_t length = 0;
    FORETOKEN_RETURN_IF_ERROR(Number(what, length));
    if (length > max) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " of ", length, " bytes, want at most ", max));
    }
    return Bytes(length, what, out);
  }

 private:
  const absl::string_view bytes_;
  size_t position_ = 0;
};

// For strings that only the file's size bounds.
constexpr uint64_t kAnyLength = UINT64_MAX;

absl::Status ReadValue(Reader& reader, GgufType type, GgufValue& value) {
  value.type = type;
  if (type == GgufType::kString) {
    return reader.String("string", kAnyLength, value.bytes);
  }
  const size_t bytes = GgufTypeBytes(type);
  if (bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("value has ", GgufTypeName(type), ", want 0..12"));
  }
  // Views into the file, which the caller keeps mapped; nothing is copied.
  FORETOKEN_RETURN_IF_ERROR(reader.Bytes(bytes, "value", value.bytes));
  if (type == GgufType::kBool && value.bytes[0] != 0 && value.bytes[0] != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bool is ", static_cast<uint8_t>(value.bytes[0]), ", want 0 or 1"));
  }
  return absl::OkStatus();
}

absl::Status ReadArray(Reader& reader, GgufValue& value) {
  value.type = GgufType::kArray;
  uint32_t element = 0;
  FORETOKEN_RETURN_IF_ERROR(reader.Number("element type", element));
  FORETOKEN_RETURN_IF_ERROR(reader.Number("list length", value.count));
  value.element = static_cast<GgufType>(element);
  if (value.element == GgufType::kArray) {
    return absl::UnimplementedError("a list of lists is not supported");
  }
  // Lists stay where they are: `value` refers to their bytes. Strings and bools
  // are walked all the same, the first to find their end, the second because
  // each byte must be 0 or 1.
  const absl::string_view all = reader.rest();
  const size_t begin = reader.position();
  const uint64_t bytes = GgufTypeBytes(value.element);
  if (value.element == GgufType::kString || value.element == GgufType::kBool) {
    // A string takes eight bytes at least and a bool one, so the walk ends with
    // the file, whatever the count says.
    GgufValue one;
    for (uint64_t i = 0; i < value.count; ++i) {
      FORETOKEN_RETURN_IF_ERROR(ReadValue(reader, value.element, one));
    }
  } else if (bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "list has elements of ", GgufTypeName(value.element), ", want 0..12"));
  } else {
    uint64_t total = 0;
    absl::string_view ignored;
    // A product that overflows becomes a size that Bytes refuses.
    if (__builtin_mul_overflow(bytes, value.count, &total)) total = kAnyLength;
    FORETOKEN_RETURN_IF_ERROR(reader.Bytes(total, "list", ignored));
  }
  value.bytes = all.substr(0, reader.position() - begin);
  return absl::OkStatus();
}

// A key that occurs twice is refused: readers differ in which one they take.
absl::StatusOr<GgufMetadata> ReadMetadata(Reader& reader, uint64_t count,
                                          const std::string& file) {
  GgufMetadata::Values values;
  for (uint64_t i = 0; i < count; ++i) {
    absl::string_view key;
    absl::Status read = reader.String("key", kMaxGgufKeyBytes, key);
    if (!read.ok()) return Annotate(read, absl::StrCat("metadata ", i));
    uint32_t type = 0;
    GgufValue value;
    read = reader.Number("value type", type);
    if (read.ok()) {
      read = static_cast<GgufType>(type) == GgufType::kArray
                 ? ReadArray(reader, value)
                 : ReadValue(reader, static_cast<GgufType>(type), value);
    }
    if (!read.ok()) return Annotate(read, PrintableGgufText(key));
    if (!values.emplace(std::string(key), value).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata names ", PrintableGgufText(key), " twice"));
    }
  }
  return GgufMetadata(file, std::move(values));
}

// A tensor of the table and where its data begins in the data section.
struct Entry {
  GgufTensor tensor;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

absl::Status ReadShape(Reader& reader, Entry& entry) {
  uint32_t dimensions = 0;
  FORETOKEN_RETURN_IF_ERROR(reader.Number("number of dimensions", dimensions));
  if (dimensions < 1 || dimensions > kMaxDimensions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", dimensions, " dimensions, want 1..", kMaxDimensions));
  }
  // Every product must fit, so that later code may multiply sizes without a
  // check.
  uint64_t elements = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    uint64_t size = 0;
    FORETOKEN_RETURN_IF_ERROR(reader.Number("dimension", size));
    if (size < 1 || size > static_cast<uint64_t>(INT64_MAX) ||
        __builtin_mul_overflow(elements, size, &elements) ||
        elements > static_cast<uint64_t>(INT64_MAX)) {
      return absl::InvalidArgumentError(
          absl::StrCat("dimension ", i, " is ", size,
                       ", want sizes whose product fits 63 bits"));
    }
    // GGUF lists the fastest dimension first; `shape` has it last.
    entry.tensor.shape.insert(entry.tensor.shape.begin(),
                              static_cast<int64_t>(size));
  }
  FORETOKEN_RETURN_IF_ERROR(reader.Number("type", entry.tensor.type));
  FORETOKEN_RETURN_IF_ERROR(reader.Number("offset", entry.offset));
  const GgufTensorType* type = FindGgufTensorType(entry.tensor.type);
  if (type == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("has type ", entry.tensor.type,
                     ", which is not a tensor type of GGUF"));
  }
  // Quantised types store blocks of elements: a row is a whole number of them.
  const uint64_t block = static_cast<uint64_t>(type->block);
  const uint64_t row = static_cast<uint64_t>(entry.tensor.shape.back());
  if (row % block != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("has rows of ", row, " ", type->name,
                     " elements, want a multiple of ", block));
  }
  if (__builtin_mul_overflow(elements / block,
                             static_cast<uint64_t>(type->block_bytes),
                             &entry.bytes)) {
    // More than any file has: PlaceTensors refuses it.
    entry.bytes = UINT64_MAX;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Entry>> ReadTable(Reader& reader, uint64_t count) {
  std::vector<Entry> entries;
  std::set<absl::string_view> names;
  // Grown entry by entry, not reserved by `count`: a short file with a large
  // count must not cost memory.
  for (uint64_t i = 0; i < count; ++i) {
    absl::string_view name;
    absl::Status read = reader.String("name", kMaxGgufTensorName, name);
    if (!read.ok()) return Annotate(read, absl::StrCat("tensor ", i));
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", PrintableGgufText(name), " is there twice"));
    }
    Entry entry;
    entry.tensor.name = std::string(name);
    read = ReadShape(reader, entry);
    if (!read.ok()) {
      return Annotate(read, absl::StrCat("tensor ", PrintableGgufText(name)));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

absl::Status PlaceTensors(absl::Span<const uint8_t> data, uint64_t alignment,
                          std::vector<Entry>& entries) {
  std::vector<const Entry*> by_offset;
  for (Entry& entry : entries) {
    // Errors name the tensor, cut and escaped: names come from the file.
    const auto error = [&entry](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", PrintableGgufText(entry.tensor.name), " ", what));
    };
    if (entry.offset % alignment != 0) {
      return error(absl::StrCat("begins at byte ", entry.offset,
                                " of the data, want a multiple of ",
                                alignment));
    }
    // Subtracted, not added: the sum may overflow.
    if (entry.offset > data.size() ||
        entry.bytes > data.size() - entry.offset) {
      return error(absl::StrCat("has ", entry.bytes, " bytes at byte ",
                                entry.offset, " of the data, which has only ",
                                data.size(), ": truncated or corrupt"));
    }
    // Safe to form now: offset and size were checked against the data.
    entry.tensor.data = data.subspan(entry.offset, entry.bytes);
    by_offset.push_back(&entry);
  }
  std::sort(
      by_offset.begin(), by_offset.end(),
      [](const Entry* a, const Entry* b) { return a->offset < b->offset; });
  // Sorted by offset, tensors overlap only if neighbours do: O(n log n).
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const Entry& before = *by_offset[i - 1];
    if (by_offset[i]->offset < before.offset + before.bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", PrintableGgufText(by_offset[i]->tensor.name),
          " overlaps tensor ", PrintableGgufText(before.tensor.name)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckVersion(uint32_t version) {
  if (version == 2 || version == 3) return absl::OkStatus();
  // Version 1 has 32-bit counts and lengths.
  if (version == 1) {
    return absl::UnimplementedError("version is 1, want 2 or 3");
  }
  // A small version number read with its bytes swapped has its low half empty.
  if (version != 0 && (version & 0xffffu) == 0) {
    return absl::UnimplementedError(
        "is a big-endian file, want a little-endian one");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("version is ", version, ", want 2 or 3"));
}

absl::StatusOr<Gguf> Parse(absl::Span<const uint8_t> bytes,
                           const std::string& file) {
  if (!IsGguf(bytes)) {
    return absl::InvalidArgumentError("does not begin with GGUF");
  }
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()),
                               bytes.size());
  Reader reader(text);
  Gguf gguf;
  uint64_t tensor_count = 0;
  uint64_t key_count = 0;
  absl::string_view magic;
  FORETOKEN_RETURN_IF_ERROR(reader.Bytes(kMagic.size(), "magic", magic));
  FORETOKEN_RETURN_IF_ERROR(reader.Number("version", gguf.version));
  FORETOKEN_RETURN_IF_ERROR(CheckVersion(gguf.version));
  FORETOKEN_RETURN_IF_ERROR(reader.Number("tensor count", tensor_count));
  FORETOKEN_RETURN_IF_ERROR(reader.Number("metadata count", key_count));
  // Before anything is read: each key or tensor costs memory even if it is a
  // few bytes in the file.
  if (tensor_count > kMaxGgufTensors || key_count > kMaxGgufKeys) {
    return absl::InvalidArgumentError(absl::StrCat(
        tensor_count, " tensors and ", key_count, " keys, want at most ",
        kMaxGgufTensors, " and ", kMaxGgufKeys));
  }
  FORETOKEN_ASSIGN_OR_RETURN(gguf.metadata,
                             ReadMetadata(reader, key_count, file));
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<Entry> entries,
                             ReadTable(reader, tensor_count));

  uint64_t alignment = kDefaultAlignment;
  if (const GgufValue* value = gguf.metadata.Find("general.alignment")) {
    alignment = static_cast<uint64_t>(value->Integer().value_or(0));
    if (alignment == 0 || alignment > kMaxAlignment ||
        (alignment & (alignment - 1)) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("general.alignment is ", value->Text(),
                       ", want a power of two up to ", kMaxAlignment));
    }
  }
  // Data begins at the next multiple of the alignment. A file without tensors
  // may end before that.
  const uint64_t begin = std::min<uint64_t>(
      (reader.position() + alignment - 1) & ~(alignment - 1), bytes.size());
  FORETOKEN_RETURN_IF_ERROR(
      PlaceTensors(bytes.subspan(begin), alignment, entries));
  for (Entry& entry : entries) {
    gguf.tensors.push_back(std::move(entry.tensor));
  }
  return gguf;
}

}  // namespace

bool IsGguf(absl::Span<const uint8_t> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

absl::StatusOr<Gguf> ParseGguf(absl::Span<const uint8_t> bytes,
                               const std::string& file) {
  absl::StatusOr<Gguf> gguf = Parse(bytes, file);
  if (!gguf.ok()) return Annotate(gguf.status(), file);
  return gguf;
}

}  // namespace foretoken
