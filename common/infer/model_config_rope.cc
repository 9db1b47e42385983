#include "common/infer/model_config_rope.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

// Reads the scaling from `rope_scaling` or `rope_parameters`.
absl::Status ReadScaling(const JsonFields& rope, ModelConfig& config) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<std::string> rope_type,
                             rope.String("rope_type"));
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<std::string> old_type,
                             rope.String("type"));
  if (rope_type && old_type && *rope_type != *old_type) {
    return rope.Invalid("type",
                        absl::StrCat("the same as rope_type ", *rope_type));
  }
  // "type" is the older name of "rope_type".
  const char* type_field = rope_type ? "rope_type" : "type";
  const std::string type =
      rope_type ? *rope_type : old_type.value_or("default");
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<double> partial,
                             rope.Number("partial_rotary_factor", 0.0, 1.0));
  if (partial && *partial != 1.0) {
    return rope.Unsupported("partial_rotary_factor", "1");
  }

  RopeScaling& scaling = config.rope_scaling;
  if (type == "default") return absl::OkStatus();
  if (type != "linear" && type != "llama3") {
    return rope.Unsupported(type_field, "default, linear or llama3");
  }
  FORETOKEN_ASSIGN_OR_RETURN(const double factor,
                             rope.RequiredNumber("factor", 1.0, 1e6));
  scaling.factor = static_cast<float>(factor);
  if (type == "linear") {
    scaling.type = RopeScaling::Type::kLinear;
    return absl::OkStatus();
  }
  scaling.type = RopeScaling::Type::kLlama3;
  FORETOKEN_ASSIGN_OR_RETURN(const double low,
                             rope.RequiredNumber("low_freq_factor", 1e-3, 1e6));
  FORETOKEN_ASSIGN_OR_RETURN(
      const double high, rope.RequiredNumber("high_freq_factor", 1e-3, 1e6));
  FORETOKEN_ASSIGN_OR_RETURN(
      const int64_t original,
      rope.RequiredInteger("original_max_position_embeddings", 1,
                           ModelConfig::kMaxPositions));
  scaling.low_freq_factor = static_cast<float>(low);
  scaling.high_freq_factor = static_cast<float>(high);
  scaling.original_max_positions = static_cast<int32_t>(original);
  if (!(scaling.high_freq_factor > scaling.low_freq_factor)) {
    return rope.Invalid("high_freq_factor",
                        absl::StrCat("more than low_freq_factor ", low));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadRope(const JsonFields& fields, const std::string& file,
                      ModelConfig& config) {
  constexpr double kMinTheta = 1.0;
  constexpr double kMaxTheta = 1e12;
  const Json* scaling = fields.Find("rope_scaling");
  const Json* parameters = fields.Find("rope_parameters");
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<double> theta,
                             fields.Number("rope_theta", kMinTheta, kMaxTheta));
  config.rope_theta = static_cast<float>(theta.value_or(10000.0));
  if (scaling != nullptr && parameters != nullptr && *scaling != *parameters) {
    return fields.Invalid("rope_scaling",
                          "the same as rope_parameters, or one of them only");
  }
  // Both layouts may be present, for older readers; they must agree then.
  const Json* rope_object = parameters != nullptr ? parameters : scaling;
  if (rope_object == nullptr) return absl::OkStatus();
  const char* name = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  if (!rope_object->is_object()) return fields.Invalid(name, "an object");

  const JsonFields rope(*rope_object, file, absl::StrCat(name, "."));
  // Newer files may give parameters per kind of layer.
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    if (rope.Find(layer_type) != nullptr) {
      return rope.Unsupported(layer_type,
                              "one rotary embedding for all layers");
    }
  }
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<double> inner_theta,
                             rope.Number("rope_theta", kMinTheta, kMaxTheta));
  if (inner_theta) {
    if (theta && *theta != *inner_theta) {
      return rope.Invalid("rope_theta",
                          absl::StrCat("the same as rope_theta ", *theta));
    }
    config.rope_theta = static_cast<float>(*inner_theta);
  }
  FORETOKEN_RETURN_IF_ERROR(ReadScaling(rope, config));

  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<int64_t> outer_original,
                             fields.Integer("original_max_position_embeddings",
                                            1, ModelConfig::kMaxPositions));
  const RopeScaling& read = config.rope_scaling;
  if (read.type == RopeScaling::Type::kLlama3 && outer_original &&
      *outer_original != read.original_max_positions) {
    return fields.Invalid(
        "original_max_position_embeddings",
        absl::StrCat(read.original_max_positions, " as in ", name));
  }
  return absl::OkStatus();
}

}  // namespace foretoken
