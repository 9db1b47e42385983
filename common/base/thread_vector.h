// Threads that a pool starts as it needs them. Thread-compatible.
#ifndef FORETOKEN_COMMON_BASE_THREAD_VECTOR_H_
#define FORETOKEN_COMMON_BASE_THREAD_VECTOR_H_

#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace foretoken {

// Starts one more thread. If the system refuses, the existing threads do the
// work; if there are none, throws std::system_error. Pools start their first
// thread when they are made, so that this can only happen while a process
// starts.
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
