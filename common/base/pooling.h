// Pooling: how the final hidden states of a text become its embedding.
#ifndef FORETOKEN_COMMON_BASE_POOLING_H_
#define FORETOKEN_COMMON_BASE_POOLING_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace foretoken {

enum class Pooling : uint8_t {
  kNone,   // no embedding
  kModel,  // as the model's files say; kMean where they do not
  kMean,   // the mean of the states of all tokens
  kLast,   // the state of the last token
};
inline constexpr std::array kPoolingNames = {"none", "model", "mean", "last"};

inline const char* PoolingName(Pooling pooling) {
  return kPoolingNames[static_cast<size_t>(pooling)];
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_POOLING_H_
