// Modes by protobuf reflection: the field's name is the mode's, a field of its
// message is a parameter, so that a new mode needs no code here.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"

namespace foretoken::rpc {
namespace {

namespace pb = ::google::protobuf;

// MATCH_FIRST of enum Match -> "first".
std::string EnumText(const pb::EnumValueDescriptor& value) {
  const std::string prefix = absl::AsciiStrToUpper(value.type()->name()) + "_";
  return absl::AsciiStrToLower(value.name().substr(prefix.size()));
}

std::string FieldText(const pb::Message& message,
                      const pb::FieldDescriptor& field) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(reflection.GetInt32(message, &field));
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case pb::FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(*reflection.GetEnum(message, &field));
    default:
      return reflection.GetString(message, &field);
  }
}

// False if `text` is not of the field's type.
bool SetField(const pb::FieldDescriptor& field, const std::string& text,
              pb::Message& message) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT32: {
      int32_t value = 0;
      if (!absl::SimpleAtoi(text, &value)) return false;
      reflection.SetInt32(&message, &field, value);
      return true;
    }
    case pb::FieldDescriptor::CPPTYPE_BOOL: {
      bool value = false;
      if (!absl::SimpleAtob(text, &value)) return false;
      reflection.SetBool(&message, &field, value);
      return true;
    }
    case pb::FieldDescriptor::CPPTYPE_ENUM: {
      const pb::EnumDescriptor& type = *field.enum_type();
      for (int i = 1; i < type.value_count(); ++i) {
        if (EnumText(*type.value(i)) != text) continue;
        reflection.SetEnum(&message, &field, type.value(i));
        return true;
      }
      return false;
    }
    default:
      reflection.SetString(&message, &field, text);
      return true;
  }
}

}  // namespace

absl::Status ToProto(const ModeSpec& spec, v1::SpeculationConfig* proto) {
  const pb::FieldDescriptor* mode =
      proto->GetDescriptor()->FindFieldByName(spec.name());
  if (mode == nullptr || mode->containing_oneof() == nullptr ||
      mode->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE) {
    return absl::UnimplementedError(
        absl::StrCat("mode ", spec.name(), ": no request can name it"));
  }
  pb::Message& message = *proto->GetReflection()->MutableMessage(proto, mode);
  for (const auto& [key, value] : spec.parameters()) {
    const pb::FieldDescriptor* field =
        message.GetDescriptor()->FindFieldByName(key);
    if (field == nullptr || !SetField(*field, value, message)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mode ", spec.name(), ": parameter ", key, "=", value,
          field == nullptr ? " is not known" : " has no such value"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ModeSpec> FromProto(const v1::SpeculationConfig& proto) {
  const pb::Reflection& reflection = *proto.GetReflection();
  const pb::OneofDescriptor* oneof =
      proto.GetDescriptor()->FindOneofByName("mode");
  const pb::FieldDescriptor* mode =
      reflection.GetOneofFieldDescriptor(proto, oneof);
  if (mode == nullptr) return ModeSpec();
  const pb::Message& message = reflection.GetMessage(proto, mode);
  std::vector<const pb::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  std::vector<std::pair<std::string, std::string>> parameters;
  for (const pb::FieldDescriptor* field : fields) {
    parameters.emplace_back(field->name(), FieldText(message, *field));
  }
  return ModeSpec::Create(mode->name(), std::move(parameters));
}

}  // namespace foretoken::rpc
