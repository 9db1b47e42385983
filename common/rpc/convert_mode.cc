// Conversion of modes by protobuf reflection: each field of the oneof is named
// after a mode, each field of its message after a parameter. A test compares
// both with the mode table.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <optional>
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

// Modes and messages have the same names and parameters, so that reflection
// converts them: a new mode needs no code here.
namespace pb = ::google::protobuf;

// MATCH_FIRST of enum Match -> "first".
std::string EnumText(const pb::EnumValueDescriptor& value) {
  const std::string prefix = absl::AsciiStrToUpper(value.type()->name()) + "_";
  return absl::AsciiStrToLower(value.name().substr(prefix.size()));
}

absl::StatusOr<std::string> FieldText(const pb::Message& message,
                                      const pb::FieldDescriptor& field) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(reflection.GetInt32(message, &field));
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case pb::FieldDescriptor::CPPTYPE_ENUM: {
      // By number: Reflection::GetEnum keeps a descriptor, for the life of the
      // process, of every unknown value that a client sends.
      const int number = reflection.GetEnumValue(message, &field);
      const pb::EnumValueDescriptor* value =
          field.enum_type()->FindValueByNumber(number);
      if (value == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("parameter '", field.name(), "': ", number,
                         " is no value of ", field.enum_type()->name()));
      }
      return EnumText(*value);
    }
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
      // Value 0 is UNSPECIFIED.
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

absl::Status ToProto(const Mode& mode, v1::SpeculationConfig* proto) {
  const pb::FieldDescriptor* field =
      mode.info().in_requests
          ? proto->GetDescriptor()->FindFieldByName(mode.name())
          : nullptr;
  if (field == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("mode '", mode.name(), "': no request can name it"));
  }
  pb::Message& message = *proto->GetReflection()->MutableMessage(proto, field);
  for (const auto& [key, value] : mode.spec().parameters()) {
    const pb::FieldDescriptor* parameter =
        message.GetDescriptor()->FindFieldByName(key);
    if (parameter == nullptr || !SetField(*parameter, value, message)) {
      return absl::InternalError(absl::StrCat("mode '", mode.name(),
                                              "': parameter '", key, "=", value,
                                              "' is not in the message"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Mode>> FromProto(
    const v1::SpeculationConfig& proto) {
  const pb::Reflection& reflection = *proto.GetReflection();
  const pb::FieldDescriptor* field = reflection.GetOneofFieldDescriptor(
      proto, proto.GetDescriptor()->FindOneofByName("mode"));
  if (field == nullptr) return std::nullopt;
  const pb::Message& message = reflection.GetMessage(proto, field);
  std::vector<const pb::FieldDescriptor*> given;
  // Lists only fields that are set: parameters that were not given stay unset.
  message.GetReflection()->ListFields(message, &given);
  std::vector<std::pair<std::string, std::string>> parameters;
  for (const pb::FieldDescriptor* parameter : given) {
    FORETOKEN_ASSIGN_OR_RETURN(std::string text,
                               FieldText(message, *parameter));
    parameters.emplace_back(parameter->name(), std::move(text));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      ModeSpec spec, ModeSpec::Create(field->name(), std::move(parameters)));
  return Mode::Create(std::move(spec));
}

}  // namespace foretoken::rpc
