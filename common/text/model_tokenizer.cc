#include "common/text/model_tokenizer.h"

#include "absl/status/status.h"

namespace foretoken {

absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadModelTokenizer(
    const std::string& model) {
  if (model.empty()) return nullptr;
  auto loaded = Tokenizer::LoadShared(model);
  if (absl::IsNotFound(loaded.status())) return nullptr;
  return loaded;
}

}  // namespace foretoken
