#include "common/text/jinja/template.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/parser.h"

namespace foretoken::jinja {

absl::StatusOr<Template> Template::Parse(absl::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "line 1: a template of more than ", kMaxSourceBytes, " bytes"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(Body body, ParseTemplate(source));
  return Template(std::move(body));
}

absl::StatusOr<Text> Template::Render(const Variables& variables,
                                      const RenderOptions& options) const {
  return Interpreter(options).Run(body_, variables);
}

}  // namespace foretoken::jinja
