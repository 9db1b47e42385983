#include "tests/lab/cli/replay_variants.h"

#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace foretoken::cli {
namespace {

// More would measure one another's caches.
constexpr size_t kMaxVariants = 32;

constexpr char kNodes[] = "max_tree_nodes";

struct TextField {
  const char* name;
  std::string& value;
};
struct ListField {
  const char* name;
  std::vector<std::string>& values;
};

std::vector<TextField> TextFields(ReplayVariant& variant) {
  return {{"name", variant.name},
          {"mode", variant.drafter.mode},
          {"prior", variant.drafter.prior},
          {"crest", variant.drafter.crest},
          {"index_memory", variant.drafter.index_memory},
          {"node_price", variant.node_price}};
}
std::vector<ListField> ListFields(ReplayVariant& variant) {
  return {{"rest_corpus", variant.rest.corpus},
          {"exclude_ids", variant.rest.exclude_ids}};
}

absl::Status ReadText(const Json& value, std::string& into) {
  if (!value.is_string()) return absl::InvalidArgumentError("want a string");
  into = value.get<std::string>();
  return absl::OkStatus();
}

// `nodes` is the highest value allowed.
absl::Status ReadNodes(const Json& value, int& nodes) {
  if (!value.is_number_integer() || value < 1 || value > nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("want a number from 1 to ", nodes));
  }
  value.get_to(nodes);
  return absl::OkStatus();
}

absl::Status ReadField(const std::string& name, const Json& value,
                       ReplayVariant& variant) {
  if (name == kNodes) return ReadNodes(value, variant.drafter.max_tree_nodes);
  for (const TextField& field : TextFields(variant)) {
    if (name == field.name) return ReadText(value, field.value);
  }
  for (const ListField& field : ListFields(variant)) {
    if (name != field.name) continue;
    if (!value.is_array()) return absl::InvalidArgumentError("want an array");
    field.values.clear();
    for (const Json& element : value) {
      FORETOKEN_RETURN_IF_ERROR(ReadText(element, field.values.emplace_back()));
    }
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("no such field");
}

absl::StatusOr<ReplayVariant> ReadVariant(const Json& object,
                                          const DrafterOptions& shared) {
  if (!object.is_object()) return absl::InvalidArgumentError("want an object");
  ReplayVariant variant;
  variant.drafter = shared;
  for (const auto& [name, value] : object.items()) {
    FORETOKEN_RETURN_IF_ERROR(Annotate(ReadField(name, value, variant), name));
  }
  if (variant.name.empty() || variant.drafter.mode.empty()) {
    return absl::InvalidArgumentError("want a name and a mode");
  }
  if (variant.node_price != kMeasuredPrice && variant.node_price != kNoPrice) {
    return absl::InvalidArgumentError(
        absl::StrCat("node_price: want ", kMeasuredPrice, " or ", kNoPrice));
  }
  return variant;
}

}  // namespace

absl::StatusOr<std::vector<ReplayVariant>> ReadVariants(
    const std::string& file, const DrafterOptions& shared) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(file));
  if (!json.is_array() || json.empty() || json.size() > kMaxVariants) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, ": want an array of 1 to ", kMaxVariants, " variants"));
  }
  std::vector<ReplayVariant> variants;
  std::set<std::string> names;
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string place = absl::StrCat(file, ": [", i, "]");
    absl::StatusOr<ReplayVariant> variant = ReadVariant(json[i], shared);
    if (!variant.ok()) return Annotate(variant.status(), place);
    if (!names.insert(variant->name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          place, ": another variant is named \"", variant->name, "\""));
    }
    variants.push_back(*std::move(variant));
  }
  return variants;
}

Json VariantJson(const ReplayVariant& variant) {
  ReplayVariant copy = variant;
  Json json = {{kNodes, variant.drafter.max_tree_nodes}};
  for (const TextField& field : TextFields(copy)) {
    if (!field.value.empty()) json[field.name] = field.value;
  }
  for (const ListField& field : ListFields(copy)) {
    if (!field.values.empty()) json[field.name] = field.values;
  }
  return json;
}

}  // namespace foretoken::cli
