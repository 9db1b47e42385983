// The memory that Tokenizer::Encode takes besides the text.
#ifndef FORETOKEN_COMMON_TEXT_ENCODING_MEMORY_H_
#define FORETOKEN_COMMON_TEXT_ENCODING_MEMORY_H_

#include <cstdint>

namespace foretoken {

// Byte pair encoding of a text without any boundary, for every byte: a symbol
// in a list that doubles (16), its links (8), two candidates in the heap (40),
// an id (1 at first), and the normal form, in which a space may take three
// bytes and a list doubles (6). RequestMemoryTest measures it.
inline constexpr int64_t kEncodingBytesPerTextByte = 72;

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_ENCODING_MEMORY_H_
