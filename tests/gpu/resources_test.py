"""tests/gpu/resources.py on small kernels: what the compiler says is what it
reads, and spilled registers are a failure. Needs nvcc."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests/gpu"))
import resources

NVCC = os.environ.get("FORETOKEN_NVCC") or shutil.which("nvcc")

# 96 values of a thread, all alive at once, of which a block of 1,024 threads
# has room for 64 at most.
SPILLING = """
__global__ void __launch_bounds__(1024) Spilling(float* p) {
  float x[96], sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 96; ++i) x[i] = p[i * 1024 + threadIdx.x];
#pragma unroll
  for (int i = 0; i < 96; ++i) sum += x[i];
#pragma unroll
  for (int i = 0; i < 96; ++i) p[i * 1024 + threadIdx.x] = x[i] * sum;
}
"""
PLAIN = """
__global__ void __launch_bounds__(128) Plain(float* p) {
  __shared__ float all[96];
  all[threadIdx.x % 96] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = all[95 - threadIdx.x % 96];
}
"""


class ResourcesTest(unittest.TestCase):
    def compiled(self, source, *architectures):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "kernel.cu"
        path.write_text(source)
        module = path.with_suffix(".o")
        done = subprocess.run(
            [NVCC, "-Xptxas", "-v", "-c", path, "-o", module]
            + [f"--generate-code=arch=compute_{a},code=sm_{a}"
               for a in architectures],
            capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = re.findall(r"Used (\d+) registers", done.stdout + done.stderr)
        return module, [int(number) for number in said]

    def test_reads_what_the_compiler_says(self):
        module, said = self.compiled(PLAIN, "80", "90a")
        found, version = resources.read(module)
        self.assertEqual(sorted(found), [80, 90])
        self.assertRegex(version, r"^\d+\.\d+\.\d+$")
        read = [kernels[0].registers for kernels in found.values()]
        self.assertEqual(sorted(read), sorted(said))
        for kernels in found.values():
            self.assertEqual(kernels[0].name, "Plain(float*)")
            self.assertEqual(kernels[0].threads, 128)
            self.assertEqual(kernels[0].frame, 0)
            self.assertEqual(kernels[0].static_shared, 96 * 4)
        self.assertEqual(list(resources.problems_of(found)), [])

    def test_spilled_registers_are_a_problem(self):
        module, said = self.compiled(SPILLING, "90")
        self.assertEqual(said, [64])
        problems = list(resources.problems_of(resources.read(module)[0]))
        self.assertEqual(len(problems), 1)
        self.assertIn("bytes of stack, want 0", problems[0])


if __name__ == "__main__":
    if not NVCC:
        print("resources_test: no CUDA toolkit: nvcc is not on PATH")
        sys.exit(77)
    unittest.main()
