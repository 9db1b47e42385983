#include "common/infer/factory/named_shapes.h"

#include "absl/strings/str_join.h"

namespace foretoken {
namespace {

struct Shape {
  const char* name;
  int32_t d_model, layers, heads, kv_heads, head_dim, d_ff, vocab, positions;
  float rope_theta;
  bool tied;
};

// From the models' config.json files.
constexpr Shape kShapes[] = {
    {"llama-3-8b", 4096, 32, 32, 8, 128, 14336, 128256, 8192, 5e5f, false},
    {"llama-2-7b", 4096, 32, 32, 32, 128, 11008, 32000, 4096, 1e4f, false},
    {"llama-3.2-1b", 2048, 16, 32, 8, 64, 8192, 128256, 8192, 5e5f, true},
    {"llama-68m", 768, 2, 12, 12, 64, 3072, 32000, 2048, 1e4f, false},
};

}  // namespace

std::optional<ModelConfig> NamedShape(absl::string_view name) {
  for (const Shape& shape : kShapes) {
    if (name != shape.name) continue;
    ModelConfig config;
    config.d_model = shape.d_model;
    config.n_layers = shape.layers;
    config.n_heads = shape.heads;
    config.n_kv_heads = shape.kv_heads;
    config.head_dim = shape.head_dim;
    config.d_ff = shape.d_ff;
    config.vocab_size = shape.vocab;
    config.max_positions = shape.positions;
    config.rope_theta = shape.rope_theta;
    config.tied_embeddings = shape.tied;
    return config;
  }
  return std::nullopt;
}

std::string NamedShapeList() {
  return absl::StrJoin(kShapes, "|", [](std::string* out, const Shape& shape) {
    out->append(shape.name);
  });
}

}  // namespace foretoken
