// The metadata of a GGUF file: typed access by key, with errors that name the
// file, the key and its value.
//
// Values borrow the file's bytes, arrays included: nothing is copied before it
// is asked for. Thread-compatible.
#ifndef FORETOKEN_COMMON_GGUF_GGUF_METADATA_H_
#define FORETOKEN_COMMON_GGUF_GGUF_METADATA_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken {

// The values of the file.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// "uint32"; "type 99".
std::string GgufTypeName(GgufType type);

// Bytes of one value; 0 for strings, arrays and unknown types.
size_t GgufTypeBytes(GgufType type);

// A key, name or string of a file for a message: printable, cut to a readable
// length.
std::string PrintableGgufText(absl::string_view name);

// One value as it lies in the file, checked by the parser. A string is its
// characters; the strings of an array keep their eight-byte lengths.
struct GgufValue {
  GgufType type = GgufType::kUint8;
  GgufType element = GgufType::kUint8;  // of an array
  uint64_t count = 1;                   // of an array
  absl::string_view bytes;

  bool is_array() const { return type == GgufType::kArray; }
  // The value of an integer type; nothing for another type, or past int64.
  std::optional<int64_t> Integer() const;
  // The value of an integer or floating-point type.
  std::optional<double> Number() const;
  // Printable, cut to a readable length.
  std::string Text() const;
};

class GgufMetadata {
 public:
  using Values = std::map<std::string, GgufValue, std::less<>>;

  GgufMetadata() = default;
  GgufMetadata(std::string file, Values values)
      : file_(std::move(file)), values_(std::move(values)) {}

  const std::string& file() const { return file_; }
  const Values& values() const { return values_; }
  // Nullptr where there is none.
  const GgufValue* Find(absl::string_view key) const;

  // The value, or nothing where the key is absent. InvalidArgument for another
  // type or a value outside [min, max].
  absl::StatusOr<std::optional<int64_t>> Integer(absl::string_view key,
                                                 int64_t min,
                                                 int64_t max) const;
  absl::StatusOr<std::optional<double>> Number(absl::string_view key,
                                               double min, double max) const;
  absl::StatusOr<std::optional<bool>> Bool(absl::string_view key) const;
  absl::StatusOr<std::optional<absl::string_view>> String(
      absl::string_view key) const;
  // The same for a key that must be there.
  absl::StatusOr<int64_t> RequiredInteger(absl::string_view key, int64_t min,
                                          int64_t max) const;
  absl::StatusOr<absl::string_view> RequiredString(absl::string_view key) const;

  // Whole arrays of at most `max_count` elements; nothing where the key is
  // absent. The count is checked before anything is allocated: elements of one
  // byte take eight here, so that the file's size does not bound memory.
  absl::StatusOr<std::optional<std::vector<absl::string_view>>> Strings(
      absl::string_view key, uint64_t max_count) const;
  absl::StatusOr<std::optional<std::vector<int64_t>>> Integers(
      absl::string_view key, uint64_t max_count) const;
  absl::StatusOr<std::optional<std::vector<double>>> Numbers(
      absl::string_view key, uint64_t max_count) const;

  // "FILE: KEY is VALUE, want WANT"; "is missing" where it is.
  absl::Status Invalid(absl::string_view key, absl::string_view want) const;
  absl::Status Unsupported(absl::string_view key, absl::string_view want) const;

 private:
  std::string Message(absl::string_view key, absl::string_view want) const;
  // The elements of a list through `convert`, which gives nothing for one that
  // is not one of `want` ("strings").
  template <typename T>
  absl::StatusOr<std::optional<std::vector<T>>> List(
      absl::string_view key, uint64_t max_count, absl::string_view want,
      absl::FunctionRef<std::optional<T>(const GgufValue&)> convert) const;

  std::string file_;
  Values values_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_GGUF_GGUF_METADATA_H_
