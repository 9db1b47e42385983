#include "common/gguf/gguf_metadata.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

template <typename T>
// memcpy, since values are unaligned in the file.
T Read(absl::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

}  // namespace

std::string GgufTypeName(GgufType type) {
  constexpr const char* kNames[] = {
      "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
      "bool",  "string", "array",  "uint64", "int64",  "float64"};
  const uint32_t number = static_cast<uint32_t>(type);
  if (number < std::size(kNames)) return kNames[number];
  return absl::StrCat("type ", number);
}

std::string PrintableGgufText(absl::string_view name) {
  constexpr size_t kShown = 120;
  return absl::StrCat(absl::CEscape(name.substr(0, kShown)),
                      name.size() > kShown ? "..." : "");
}

size_t GgufTypeBytes(GgufType type) {
  constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  const uint32_t number = static_cast<uint32_t>(type);
  return number < std::size(kBytes) ? kBytes[number] : 0;
}

std::optional<int64_t> GgufValue::Integer() const {
  // A bool does not count as an integer.
  switch (type) {
    case GgufType::kUint8:
      // Signed and unsigned widths differ between writers of the same key, so
      // all are taken.
      return Read<uint8_t>(bytes);
    case GgufType::kInt8:
      return Read<int8_t>(bytes);
    case GgufType::kUint16:
      return Read<uint16_t>(bytes);
    case GgufType::kInt16:
      return Read<int16_t>(bytes);
    case GgufType::kUint32:
      return Read<uint32_t>(bytes);
    case GgufType::kInt32:
      return Read<int32_t>(bytes);
    case GgufType::kInt64:
      return Read<int64_t>(bytes);
    case GgufType::kUint64: {
      const uint64_t value = Read<uint64_t>(bytes);
      if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufValue::Number() const {
  if (type == GgufType::kFloat32) return Read<float>(bytes);
  if (type == GgufType::kFloat64) return Read<double>(bytes);
  if (const auto integer = Integer()) return static_cast<double>(*integer);
  return std::nullopt;
}

std::string GgufValue::Text() const {
  if (is_array()) {
    return absl::StrCat("a list of ", count, " ", GgufTypeName(element));
  }
  if (type == GgufType::kString) {
    return absl::StrCat("\"", PrintableGgufText(bytes), "\"");
  }
  if (type == GgufType::kBool) return bytes[0] != 0 ? "true" : "false";
  // Before Integer(), which has no value above int64's maximum.
  if (type == GgufType::kUint64) return absl::StrCat(Read<uint64_t>(bytes));
  if (const auto integer = Integer()) return absl::StrCat(*integer);
  return absl::StrCat(Number().value_or(0.0));
}

const GgufValue* GgufMetadata::Find(absl::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

absl::StatusOr<std::optional<int64_t>> GgufMetadata::Integer(
    absl::string_view key, int64_t min, int64_t max) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> integer = value->Integer();
  if (!integer || *integer < min || *integer > max) {
    return Invalid(key, absl::StrCat("an integer in ", min, "..", max));
  }
  return integer;
}

absl::StatusOr<std::optional<double>> GgufMetadata::Number(
    absl::string_view key, double min, double max) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  const std::optional<double> number = value->Number();
  // Written so that NaN fails, for which every comparison is false.
  if (!number || !(*number >= min && *number <= max)) {
    return Invalid(key, absl::StrCat("a number in ", min, "..", max));
  }
  return number;
}

absl::StatusOr<std::optional<bool>> GgufMetadata::Bool(
    absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->type != GgufType::kBool) return Invalid(key, "true or false");
  return std::optional<bool>(value->bytes[0] != 0);
}

absl::StatusOr<std::optional<absl::string_view>> GgufMetadata::String(
    absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<absl::string_view>();
  if (value->type != GgufType::kString) return Invalid(key, "a string");
  return std::optional<absl::string_view>(value->bytes);
}

absl::StatusOr<int64_t> GgufMetadata::RequiredInteger(absl::string_view key,
                                                      int64_t min,
                                                      int64_t max) const {
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<int64_t> value,
                             Integer(key, min, max));
  if (!value) return Invalid(key, absl::StrCat(min, "..", max));
  return *value;
}

absl::StatusOr<absl::string_view> GgufMetadata::RequiredString(
    absl::string_view key) const {
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<absl::string_view> value,
                             String(key));
  if (!value) return Invalid(key, "a string");
  return *value;
}

template <typename T>
absl::StatusOr<std::optional<std::vector<T>>> GgufMetadata::List(
    absl::string_view key, uint64_t max_count, absl::string_view want,
    absl::FunctionRef<std::optional<T>(const GgufValue&)> convert) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<T>>();
  const auto refused = [&] {
    return Invalid(key,
                   absl::StrCat("a list of at most ", max_count, " ", want));
  };
  // The count is checked before the elements, whose walk it bounds.
  if (!value->is_array() || value->count > max_count) return refused();
  std::optional<std::vector<T>> list(std::in_place);
  // `count` is at most max_count here, so the file cannot choose the
  // allocation.
  list->reserve(value->count);
  absl::string_view rest = value->bytes;  // walked by the parser: it suffices
  GgufValue element;
  element.type = value->element;
  for (uint64_t i = 0; i < value->count; ++i) {
    // Only strings have a length in front (gguf_metadata.h).
    size_t bytes = GgufTypeBytes(element.type);
    if (element.type == GgufType::kString) {
      // The parser has walked every string of the list, so length and bytes are
      // there.
      bytes = Read<uint64_t>(rest);
      rest.remove_prefix(sizeof(uint64_t));
    }
    element.bytes = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    std::optional<T> converted = convert(element);
    if (!converted) return refused();
    list->push_back(*converted);
  }
  return list;
}

absl::StatusOr<std::optional<std::vector<absl::string_view>>>
GgufMetadata::Strings(absl::string_view key, uint64_t max_count) const {
  return List<absl::string_view>(
      key, max_count, "strings",
      [](const GgufValue& element) -> std::optional<absl::string_view> {
        if (element.type != GgufType::kString) return std::nullopt;
        return element.bytes;
      });
}

absl::StatusOr<std::optional<std::vector<int64_t>>> GgufMetadata::Integers(
    absl::string_view key, uint64_t max_count) const {
  return List<int64_t>(
      key, max_count, "integers",
      [](const GgufValue& element) { return element.Integer(); });
}

absl::StatusOr<std::optional<std::vector<double>>> GgufMetadata::Numbers(
    absl::string_view key, uint64_t max_count) const {
  return List<double>(key, max_count, "finite numbers",
                      [](const GgufValue& element) -> std::optional<double> {
                        const std::optional<double> number = element.Number();
                        if (!number || !std::isfinite(*number)) return {};
                        return number;
                      });
}

std::string GgufMetadata::Message(absl::string_view key,
                                  absl::string_view want) const {
  const GgufValue* value = Find(key);
  return absl::StrCat(
      file_, ": ", PrintableGgufText(key),
      value == nullptr ? " is missing" : absl::StrCat(" is ", value->Text()),
      ", want ", want);
}

absl::Status GgufMetadata::Invalid(absl::string_view key,
                                   absl::string_view want) const {
  return absl::InvalidArgumentError(Message(key, want));
}

absl::Status GgufMetadata::Unsupported(absl::string_view key,
                                       absl::string_view want) const {
  return absl::UnimplementedError(Message(key, want));
}

}  // namespace foretoken
