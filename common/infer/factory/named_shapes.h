// Shapes of published models by name, for random weights: the cost of a pass
// depends on the shape alone.
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_INFER_FACTORY_NAMED_SHAPES_H_
#define FORETOKEN_COMMON_INFER_FACTORY_NAMED_SHAPES_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/infer/model_config.h"

namespace foretoken {

// Knows llama-3-8b, llama-2-7b, llama-3.2-1b and llama-68m (the draft model of
// Spec-Bench's reference runs); nullopt for any other name. Context limit: 8192
// positions for the Llama 3 shapes, 4096 and 2048 for the others.
std::optional<ModelConfig> NamedShape(absl::string_view name);

// The names, joined by "|".
std::string NamedShapeList();

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_FACTORY_NAMED_SHAPES_H_
