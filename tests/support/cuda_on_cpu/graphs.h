// What a test sees of the module's CUDA graphs on the CPU, and may make fail.
// Owned by one thread.
#ifndef FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_GRAPHS_H_
#define FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_GRAPHS_H_

namespace foretoken::cuda_on_cpu {

// The next `count` instantiations or launches of a graph fail for memory.
void FailGraphInstantiations(int count);
void FailGraphLaunches(int count);

// Graphs that were launched, and that exist.
int GraphLaunches();
int Graphs();

}  // namespace foretoken::cuda_on_cpu

#endif  // FORETOKEN_TESTS_SUPPORT_CUDA_ON_CPU_GRAPHS_H_
