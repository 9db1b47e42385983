// Correctness of the GPU engine, on a GPU: logits against the fp32 CPU engine,
// rows that are the same bits however they are computed, speculative output
// equal to plain output, the sampler, memory.
//
//   gpu_tests [--device N] [--quick] [--tiny] [--no-graphs] [--no-overlap]
//             [--twin] [--only NAME]
//
// Exit status 0: every check passed; 2: there is no GPU or no module was built;
// 1: anything else.
// --tiny takes the small shapes that --twin, all of it on the CPU's twin of the
// engine, always takes. FORETOKEN_CUDA_SYNC=1 names the kernel that fails or
// hangs.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "common/infer/cuda/device_module.h"
#include "tests/gpu/gpu_checks.h"
#include "tests/gpu/gpu_harness.h"

namespace foretoken::gpu_tests {
namespace {

struct Named {
  const char* name;
  void (*run)(Context& context);
};

constexpr Named kChecks[] = {
    {"logits_against_fp32", CheckLogits},
    {"row_counts", CheckRowCounts},
    {"tree_orders_and_batch_mates", CheckTreesAndMates},
    {"prefill_chunks", CheckChunks},
    {"graphs_and_overlap", CheckGraphs},
    {"huge_values_of_others", CheckHugeValues},
    {"commits", CheckCommits},
    {"sampler", CheckSampler},
    {"speculative_is_plain", CheckSpeculative},
    {"memory_runs_out", CheckMemory},
};

bool RunOne(const Named& check, Context& context) {
  context.failures.clear();
  const auto start = std::chrono::steady_clock::now();
  check.run(context);
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  const bool good = context.failures.empty();
  std::printf("%-4s %-28s %7.1f s\n", good ? "ok" : "FAIL", check.name,
              taken.count());
  for (const std::string& what : context.failures) {
    std::printf("     %s\n", what.c_str());
  }
  std::fflush(stdout);
  return good;
}

// 0 where the checks can run; else one line, and the exit status.
int LookForGpu(const Context& context) {
  if (context.twin) return 0;
  const auto module = DeviceModule::Load();
  const absl::Status status =
      module.ok() ? module->Probe(context.device) : module.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpu_tests: %s\n", status.ToString().c_str());
  // A module that is there and does not load is a failure; so is a device that
  // is there and does not answer.
  const bool none = absl::StrContains(status.message(), "no GPU") &&
                    absl::IsUnavailable(status);
  const char* required = std::getenv("FORETOKEN_REQUIRE_GPU");
  const bool must = required != nullptr && std::strcmp(required, "1") == 0;
  return none && !must ? 2 : 1;
}

int Main(int argc, char** argv) {
  Context context;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--twin") {
      context.twin = true;
    } else if (argument == "--quick") {
      context.quick = true;
    } else if (argument == "--tiny") {
      context.tiny = true;
    } else if (argument == "--no-graphs") {
      context.graphs = false;
    } else if (argument == "--no-overlap") {
      context.overlap = false;
    } else if (argument == "--device" && i + 1 < argc) {
      context.device = std::atoi(argv[++i]);
    } else if (argument == "--only" && i + 1 < argc) {
      only = argv[++i];
    } else {
      std::fprintf(stderr,
                   "usage: gpu_tests [--device N] [--quick] [--tiny] "
                   "[--no-graphs] [--no-overlap] [--twin] [--only NAME]\n");
      return 1;
    }
  }
  if (const int status = LookForGpu(context); status != 0) return status;
  int ran = 0, failed = 0;
  for (const Named& check : kChecks) {
    if (!only.empty() && only != check.name) continue;
    ++ran;
    failed += RunOne(check, context) ? 0 : 1;
  }
  if (ran == 0) {
    std::fprintf(stderr, "gpu_tests: no check is named %s\n", only.c_str());
    return 1;
  }
  std::printf("gpu_tests on %s: %d passed, %d failed\n",
              context.twin ? "the CPU's twin" : "the GPU", ran - failed,
              failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace foretoken::gpu_tests

int main(int argc, char** argv) {
  return foretoken::gpu_tests::Main(argc, argv);
}
