// The fields that constrain the text of an answer, as OpenAI, vLLM, SGLang and
// llama.cpp name them. A request may have one of them.
//
//   response_format: {"type": "json_object" | "json_schema", ...}   OpenAI
//   response_format: {"type": "structural_tag", ...}                vLLM,
//   SGLang text: {"format": {...}} OpenAI structured_outputs: {"json" | "regex"
//   | "choice" | ...}         vLLM guided_json, guided_regex, guided_choice,
//   guided_grammar        vLLM regex, ebnf SGLang grammar, json_schema
//   llama.cpp
//
// Schemas are passed on as the request spells them, since the order of their
// keys is that of the answer's. Their contents are left to the generator.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_CONSTRAINT_FIELDS_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_CONSTRAINT_FIELDS_H_

#include "absl/strings/string_view.h"
#include "services/gateway/core/api_request.h"
#include "services/gateway/core/request_fields.h"

namespace foretoken::gateway {

// Reads those at the top of the body `text` into request.generation.constraint,
// but for OpenAI's; errors are left in `fields`.
void ReadConstraintFields(absl::string_view text, RequestFields& fields,
                          ApiRequest& request);

// Reads OpenAI's: `field` of the object of `fields`, which the body spells as
// `text`. {"type": "text"} sets no constraint.
void ReadFormatField(absl::string_view text, const char* field,
                     RequestFields& fields, ApiRequest& request);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_CONSTRAINT_FIELDS_H_
