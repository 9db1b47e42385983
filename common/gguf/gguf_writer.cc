#include "common/gguf/gguf_writer.h"

#include "common/base/check.h"
#include "common/gguf/tensor_types.h"

namespace foretoken {
namespace {

// Little-endian, as every machine that this builds for.
template <typename T>
void Append(T value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendString(absl::string_view value, std::string& out) {
  Append(uint64_t{value.size()}, out);
  out.append(value.data(), value.size());
}

}  // namespace

// A key that is written twice is a bug of the caller: readers refuse such
// files.
void GgufWriter::Key(absl::string_view key, GgufType type) {
  AppendString(key, metadata_);
  Append(static_cast<uint32_t>(type), metadata_);
  // Where the value will begin, so that Integer can read it back.
  const Place place = {metadata_.size(), type};
  FORETOKEN_CHECK(keys_.emplace(std::string(key), place).second);
}

void GgufWriter::Array(absl::string_view key, GgufType element,
                       uint64_t count) {
  Key(key, GgufType::kArray);
  Append(static_cast<uint32_t>(element), metadata_);
  Append(count, metadata_);
}

void GgufWriter::Uint32(absl::string_view key, uint32_t value) {
  Key(key, GgufType::kUint32);
  Append(value, metadata_);
}

void GgufWriter::Float32(absl::string_view key, float value) {
  Key(key, GgufType::kFloat32);
  Append(value, metadata_);
}

void GgufWriter::Bool(absl::string_view key, bool value) {
  Key(key, GgufType::kBool);
  Append(static_cast<uint8_t>(value), metadata_);
}

void GgufWriter::String(absl::string_view key, absl::string_view value) {
  Key(key, GgufType::kString);
  AppendString(value, metadata_);
}

void GgufWriter::Strings(absl::string_view key,
                         absl::Span<const std::string> values) {
  Array(key, GgufType::kString, values.size());
  for (const std::string& value : values) AppendString(value, metadata_);
}

void GgufWriter::Bytes(absl::string_view key, absl::string_view values) {
  Array(key, GgufType::kUint8, values.size());
  metadata_.append(values.data(), values.size());
}

void GgufWriter::Int32s(absl::string_view key,
                        absl::Span<const int32_t> values) {
  Array(key, GgufType::kInt32, values.size());
  for (const int32_t value : values) Append(value, metadata_);
}

void GgufWriter::Float32s(absl::string_view key,
                          absl::Span<const float> values) {
  Array(key, GgufType::kFloat32, values.size());
  for (const float value : values) Append(value, metadata_);
}

std::optional<int64_t> GgufWriter::Integer(absl::string_view key) const {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return std::nullopt;
  GgufValue value;
  value.type = found->second.type;
  value.bytes = absl::string_view(metadata_).substr(found->second.begin,
                                                    GgufTypeBytes(value.type));
  return value.Integer();
}

void GgufWriter::Copy(absl::string_view key, const GgufValue& value) {
  if (value.is_array()) {
    Array(key, value.element, value.count);
  } else {
    Key(key, value.type);
    // A GgufValue holds a string without its length; a list of strings includes
    // theirs.
    if (value.type == GgufType::kString) {
      Append(uint64_t{value.bytes.size()}, metadata_);
    }
  }
  // Arrays are copied as they lie in the file: their elements have the same
  // form there.
  metadata_.append(value.bytes.data(), value.bytes.size());
}

void GgufWriter::Tensor(absl::string_view name, uint32_t type,
                        absl::Span<const int64_t> shape) {
  const GgufTensorType* traits = FindGgufTensorType(type);
  FORETOKEN_CHECK(traits != nullptr && !shape.empty() &&
                  shape.back() % traits->block == 0);
  ++tensors_;
  AppendString(name, table_);
  Append(static_cast<uint32_t>(shape.size()), table_);
  uint64_t elements = 1;
  // GGUF wants the fastest dimension first.
  for (size_t i = shape.size(); i-- > 0;) {
    Append(static_cast<uint64_t>(shape[i]), table_);
    elements *= static_cast<uint64_t>(shape[i]);
  }
  Append(type, table_);
  Append(data_bytes_, table_);
  tensor_bytes_ = elements / static_cast<uint64_t>(traits->block) *
                  static_cast<uint64_t>(traits->block_bytes);
  // The next tensor's offset: every tensor's data is padded to the alignment.
  data_bytes_ += tensor_bytes_ + Padding(tensor_bytes_).size();
}

std::string GgufWriter::Header() const {
  std::string out = "GGUF";
  Append(uint32_t{3}, out);
  Append(tensors_, out);
  Append(uint64_t{keys_.size()}, out);
  out += metadata_;
  out += table_;
  // Data begins at the alignment.
  out += Padding(out.size());
  return out;
}

}  // namespace foretoken
