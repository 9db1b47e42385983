// Threads that a pool starts as it needs them. Thread-compatible.
#ifndef FORETOKEN_COMMON_BASE_THREAD_VECTOR_H_
#define FORETOKEN_COMMON_BASE_THREAD_VECTOR_H_

#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace foretoken {

// One thread more, if the system has room for it: else those that there are do
// its work, too. Without any, throws std::system_error; a pool therefore starts
// the first when it is made, where that is an error of the process's start.
template <typename Main>
void StartOneMore(std::vector<std::thread>& threads, Main main) {
  try {
    threads.emplace_back(std::move(main));
  } catch (const std::system_error&) {
    if (threads.empty()) throw;
  }
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_THREAD_VECTOR_H_
