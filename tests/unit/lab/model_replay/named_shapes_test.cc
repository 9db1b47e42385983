#include "common/infer/factory/named_shapes.h"

#include "common/infer/factory/backend_factory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

// What the model of this shape is called after.
int64_t Parameters(const ModelConfig& shape) {
  const int64_t d = shape.d_model;
  const int64_t attention =
      2 * d * shape.head_dim * (shape.n_heads + int64_t{shape.n_kv_heads});
  const int64_t embeddings = (shape.tied_embeddings ? 1 : 2) * d;
  return shape.n_layers * (attention + 3 * d * shape.d_ff) +
         embeddings * shape.vocab_size;
}

TEST(NamedShapesTest, HaveTheirModelsSizes) {
  const std::pair<const char*, double> sizes[] = {{"llama-3-8b", 8.03e9},
                                                  {"llama-2-7b", 6.74e9},
                                                  {"llama-3.2-1b", 1.236e9},
                                                  {"llama-68m", 68e6}};
  for (const auto& [name, parameters] : sizes) {
    const auto shape = ParseRandomModel(name);
    FORETOKEN_ASSERT_OK(shape);
    EXPECT_NEAR(static_cast<double>(Parameters(*shape)) / parameters, 1.0, 0.01)
        << name;
    EXPECT_THAT(NamedShapeList(), HasSubstr(name));
  }
  EXPECT_FALSE(NamedShape("llama").has_value());
}

TEST(NamedShapesTest, FieldsMayFollowAName) {
  const auto shape = ParseRandomModel("llama-2-7b,layers=2,max_positions=64");
  FORETOKEN_ASSERT_OK(shape);
  EXPECT_EQ(shape->n_layers, 2);
  EXPECT_EQ(shape->max_positions, 64);
  EXPECT_EQ(shape->d_model, 4096);
  EXPECT_THAT(ParseRandomModel("layers=2,llama-2-7b"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("\"llama-2-7b\", want d_model|")));
}

}  // namespace
}  // namespace foretoken
