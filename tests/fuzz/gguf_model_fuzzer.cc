// Any bytes as the model and the tokenizer of a GGUF file: no crash, no memory
// taken by a number of the file, readable tensors where the model is accepted,
// ids of the vocabulary where the tokenizer is.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/gguf/gguf_files.h"
#include "common/infer/gguf_model.h"
#include "common/text/gguf_tokenizer.h"

namespace foretoken {
namespace {

void ReadModel(const Gguf& gguf) {
  GgufFiles files;
  files.metadata = gguf.metadata;
  for (const GgufTensor& tensor : gguf.tensors) {
    files.tensors[tensor.name] = {tensor, "fuzz"};
  }
  const auto config = ReadGgufConfig(files);
  if (!config.ok()) {
    FORETOKEN_CHECK(config.status().message().size() < 4096);
    return;
  }
  FORETOKEN_CHECK(config->Validate().ok());
  ModelTensors tensors;
  const std::vector<TensorSlot> slots = LayOutTensors(*config, tensors);
  if (!BindGgufTensors(files, *config, slots).ok()) return;
  float values[300];
  for (const TensorSlot& slot : slots) {
    const int64_t count =
        std::min<int64_t>(std::size(values), slot.tensor->size());
    slot.tensor->CopyTo(0, absl::MakeSpan(values, count));
    slot.tensor->CopyTo(slot.tensor->size() - count,
                        absl::MakeSpan(values, count));
  }
}

void ReadTokenizer(const Gguf& gguf) {
  const auto tokenizer = MakeGgufTokenizer(gguf.metadata);
  if (!tokenizer.ok()) return;
  const std::string text = "it's 12 <s> caf\xC3\xA9\n\n  \xFF<|im_end|>";
  for (const TokenId id : (*tokenizer)->EncodePrompt(text)) {
    FORETOKEN_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
  }
}

}  // namespace
}  // namespace foretoken

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto gguf =
      foretoken::ParseGguf(absl::MakeConstSpan(data, size), "fuzz");
  if (!gguf.ok()) return 0;
  foretoken::ReadModel(*gguf);
  foretoken::ReadTokenizer(*gguf);
  return 0;
}
