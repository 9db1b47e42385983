#include "services/gateway/core/constraint_fields.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/raw_member.h"
#include "common/grammar/compile.h"
#include "common/grammar/constraint.h"
#include "services/gateway/core/api_error.h"

namespace foretoken::gateway {
namespace {

using Kind = Constraint::Kind;

constexpr size_t kMaxNameBytes = 256;

// Members of one JSON object that are constraints. Owned by one thread.
class ConstraintReader {
 public:
  // `fields`: those of the object, which also take its errors; `raw`: the
  // object as the body spells it. `empty_is_none`: an empty text means that
  // there is no constraint; otherwise it is an error.
  ConstraintReader(absl::string_view raw, RequestFields& fields,
                   ApiRequest& request, bool empty_is_none = false)
      : raw_(raw),
        fields_(fields),
        request_(request),
        empty_is_none_(empty_is_none) {}

  // A schema, or a string that holds one.
  void Schema(const char* field) {
    const Json* const value = fields_.Find(field);
    if (value == nullptr) return;
    if (value->is_object()) {
      Set(field, Kind::kJsonSchema, std::string(RawMember(raw_, field)));
    } else {
      Text(field, Kind::kJsonSchema, "want an object, or a string with one");
    }
  }
  void Text(const char* field, Kind kind, const char* want = "want a string") {
    const Json* const value = fields_.Find(field);
    if (value == nullptr) return;
    if (!value->is_string()) {
      Fail(field, want, "invalid_type");
    } else if (!value->get_ref<const std::string&>().empty()) {
      Set(field, kind, value->get<std::string>());
    } else if (!empty_is_none_) {
      Fail(field, "is empty", "invalid_value");
    }
  }
  void Choice(const char* field) {
    const Json* const value = fields_.Find(field);
    if (value == nullptr) return;
    const auto most = static_cast<size_t>(grammar::CompileLimits().choices);
    if (!value->is_array() || value->empty() || value->size() > most) {
      Fail(field, absl::StrCat("want an array of 1..", most, " strings"),
           "invalid_type");
      return;
    }
    std::vector<std::string> choices;
    choices.reserve(value->size());
    for (const Json& each : *value) {
      if (!each.is_string()) {
        Fail(field, "want strings", "invalid_type");
        return;
      }
      choices.push_back(each.get<std::string>());
    }
    if (Set(field, Kind::kChoice, "")) {
      request_.generation.constraint.choices = std::move(choices);
    }
  }
  // False, with an error, if there is another constraint.
  bool Set(absl::string_view field, Kind kind, std::string source) {
    Constraint& constraint = request_.generation.constraint;
    if (!constraint.empty()) {
      Fail(field,
           absl::StrCat("want one constraint, ", request_.constraint_field,
                        " is another"),
           "invalid_value");
      return false;
    }
    constraint.kind = kind;
    constraint.source = std::move(source);
    request_.constraint_field = fields_.Name(field);
    return true;
  }

 private:
  void Fail(absl::string_view field, absl::string_view message,
            absl::string_view code) {
    fields_.Fail(FieldError(fields_.Name(field), message, code));
  }

  const absl::string_view raw_;
  RequestFields& fields_;
  ApiRequest& request_;
  const bool empty_is_none_;
};

// What names a schema, and whether OpenAI would keep to it in every case: here
// it is kept to always.
void ReadSchemaNames(RequestFields& fields) {
  fields.Text("name", kMaxNameBytes);
  fields.Text("description", std::string().max_size());
  fields.Bool("strict", false);
}

void RequireSchema(RequestFields& fields) {
  if (fields.Find("schema") != nullptr) return;
  fields.Fail(FieldError(fields.Name("schema"), "is required",
                         "missing_required_parameter"));
}

// {"type": "text"}, {"type": "json_object"}, {"type": "structural_tag"}, or
// {"type": "json_schema"} with a schema: as a member (responses, llama.cpp) or
// in an object of that name (chats). `raw`: the value as the body spells it.
void ReadFormat(const Json& value, absl::string_view raw,
                const std::string& name, RequestFields& outer,
                ApiRequest& request) {
  RequestFields format(value, name);
  const Json* const type = format.Find("type");
  if (format.error().ok() && type == nullptr) {
    format.Fail(FieldError(format.Name("type"), "is required",
                           "missing_required_parameter"));
  }
  ConstraintReader reader(raw, format, request);
  if (type != nullptr && *type == "json_schema") {
    if (const Json* const named = format.Find("json_schema")) {
      RequestFields inner(*named, format.Name("json_schema"));
      ReadSchemaNames(inner);
      if (inner.error().ok()) RequireSchema(inner);
      ConstraintReader(RawMember(raw, "json_schema"), inner, request)
          .Schema("schema");
      format.Fail(inner.Finish());
    } else {
      ReadSchemaNames(format);
      RequireSchema(format);
      reader.Schema("schema");
    }
  } else if (type != nullptr && *type == "json_object") {
    // llama.cpp takes a schema here, too.
    if (format.Find("schema") != nullptr) {
      reader.Schema("schema");
    } else {
      reader.Set("type", Kind::kJsonObject, "");
    }
  } else if (type != nullptr && *type == "structural_tag") {
    // Its other members are read with the tag, which knows all of them.
    if (reader.Set("type", Kind::kStructuralTag, std::string(raw))) {
      request.constraint_field = name;
    }
    outer.Fail(format.error());
    return;
  } else if (type == nullptr || *type != "text") {
    format.Fail(Unsupported(format.Name("type"),
                            "this value is not supported, want text, "
                            "json_object, json_schema or structural_tag"));
  }
  outer.Fail(format.Finish());
}

void ReadStructuredOutputs(absl::string_view text, RequestFields& fields,
                           ApiRequest& request) {
  constexpr char kField[] = "structured_outputs";
  const Json* const value = fields.Find(kField);
  if (value == nullptr) return;
  RequestFields inner(*value, kField);
  const bool other = !request.generation.constraint.empty();
  ConstraintReader reader(RawMember(text, kField), inner, request);
  reader.Schema("json");
  reader.Text("regex", Kind::kRegex);
  reader.Choice("choice");
  reader.Text("grammar", Kind::kGrammar);
  reader.Text("structural_tag", Kind::kStructuralTag);
  // Under a schema objects are written with ", " and ": " in any case.
  const bool compact = inner.Bool("disable_any_whitespace", false);
  if (inner.Bool("json_object", false)) {
    if (compact) {
      reader.Set("json_object", Kind::kJsonSchema, R"({"type": "object"})");
    } else {
      reader.Set("json_object", Kind::kJsonObject, "");
    }
  }
  inner.Refuse("disable_additional_properties", {false});
  // A second constraint is an error already.
  if (inner.error().ok() && (other || request.generation.constraint.empty())) {
    inner.Fail(FieldError(
        kField,
        "want json, regex, choice, grammar, json_object or structural_tag",
        "invalid_value"));
  }
  fields.Fail(inner.Finish());
}

}  // namespace

void ReadConstraintFields(absl::string_view text, RequestFields& fields,
                          ApiRequest& request) {
  ReadStructuredOutputs(text, fields, request);
  // Clients of these send "" for none.
  ConstraintReader reader(text, fields, request, /*empty_is_none=*/true);
  reader.Schema("guided_json");
  reader.Text("guided_regex", Kind::kRegex);
  reader.Choice("guided_choice");
  reader.Text("guided_grammar", Kind::kGrammar);
  // There is one backend, and none of them changes what is allowed.
  fields.Text("guided_decoding_backend", kMaxNameBytes);
  reader.Text("regex", Kind::kRegex);
  reader.Text("ebnf", Kind::kGrammar);
  reader.Text("grammar", Kind::kGrammar);
  reader.Schema("json_schema");
}

void ReadFormatField(absl::string_view text, const char* field,
                     RequestFields& fields, ApiRequest& request) {
  if (const Json* const format = fields.Find(field)) {
    ReadFormat(*format, RawMember(text, field), fields.Name(field), fields,
               request);
  }
}

}  // namespace foretoken::gateway
