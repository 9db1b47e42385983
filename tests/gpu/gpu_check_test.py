"""tools/gpu_check on a machine that claims to have a GPU, with programs that
only write what the real ones would: its steps, limits and result files."""
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
MOST_FILES = 8  # that come back from such a machine

BENCH = """
while [ $# -gt 0 ]; do
  case $1 in --out) out=$2 ;; --name) name=$2 ;; --stages) stages=$2 ;; esac
  shift
done
case $stages in
  kernels) echo '{"id":"kernels.kernels","layers":1,"rows":[1]}' >>"$out" ;;
  *long*) echo '{"id":"8b.long.1","ms":5.0}' >>"$out" ;;
  *)
    echo '{"id":"'$name'.device","device":"NVIDIA H200",' \
      '"weight_bytes":15000000000,"copy_gb_s":4000}' >>"$out"
    echo '{"id":"'$name'.rows.1","ms":5.0}' >>"$out"
    sleep "$HANG" ;;
esac
"""
PROGRAMS = {
    "gpu_bench": BENCH,
    "gpu_tests": '''
echo "checks: $* sync ${FORETOKEN_CUDA_SYNC-}"
[ -z "$BROKEN" ] || { echo "FORETOKEN_CUDA_SYNC: cudaErrorIllegalAddress: " \\
  "pass 1, layer 0: NormKernel" >&2; exit 1; }
''',
    "gpu_probe":
        """echo '{"id": "mma.wgmma.8.normal", "different": 0, "of": 9}'""",
    "foretoken-lab": '[ "$1" = --version ]',
}
TOOLS = {
    "nvidia-smi": 'case $* in *compute_cap*) echo 8.6 ;; '
                  '*) echo "GPU 0: NVIDIA H200" ;; esac',
    "ncu": """
while :; do case $1 in --metrics | --clock-control) shift 2 ;;
  --*) shift ;; *) break ;; esac; done
"$@"
echo '"Kernel Name","Metric Unit","Metric Value"'
for us in 1 2 3 4 5; do echo '"GemmKernel(P)","us","'$us'"'; done
echo '"CommitKernel(P)","us","1"'
""",
    "compute-sanitizer": 'case $* in *racecheck*) exit 1 ;; esac',
    # No PyTorch, wherever the test runs.
    "python3": 'case $2 in *torch*) exit 1 ;; esac; exec "$PYTHON" "$@"',
}


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "root"
        self.out = pathlib.Path(folder.name) / "out"
        (self.root / "tools").mkdir(parents=True)
        shutil.copy(ROOT / "tools/gpu_check", self.root / "tools")
        shutil.copytree(ROOT / "tests/gpu", self.root / "tests/gpu")
        self.tools = pathlib.Path(folder.name) / "tools"
        self.write(self.root / "build/gpu_check/bin/bin", PROGRAMS)
        self.write(self.tools, TOOLS)

    @staticmethod
    def write(folder, scripts):
        folder.mkdir(parents=True, exist_ok=True)
        for name, body in scripts.items():
            path = folder / name
            path.write_text("#!/bin/bash\n" + body)
            path.chmod(0o755)

    def run_check(self, *arguments, hang=0, broken=""):
        python = shutil.which("python3")
        environment = {"PATH": f"{self.tools}:/usr/bin:/bin", "HANG": str(hang),
                       "PYTHON": python,
                       "BROKEN": broken,
                       "HOME": os.environ.get("HOME", "/")}
        return subprocess.run(
            [self.root / "tools/gpu_check", *arguments, self.out],
            env=environment, capture_output=True, text=True)

    def steps(self):
        return dict(line.split(": ", 1) for line in
                    (self.out / "steps.txt").read_text().splitlines())

    def test_the_first_run_measures_and_tests(self):
        done = self.run_check("--run", "1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(list(self.steps()),
                         ["plain", "overlap", "graphs", "probe", "quick",
                          "memcheck", "passes", "kernels", "more", "small",
                          "tests"])
        table = (self.out / "table.txt").read_text()
        self.assertIn("GPU: NVIDIA H200", table)
        self.assertRegex(table, r"share of copy bandwidth .* 0.75 .* ok")
        self.assertRegex(table, r"kernel qkv .*, 1 rows .* 1\n")
        tests = (self.out / "tests.txt").read_text()
        self.assertIn("checks: --tiny --quick sync 1", tests)
        self.assertIn("checks: --tiny --quick --no-graphs sync \n", tests)
        self.assertIn("checks: --quick sync \n", tests)
        self.assertRegex(table, r"bits of wgmma .* equal ")
        self.assertLessEqual(len(list(self.out.iterdir())), MOST_FILES)
        self.assertIn(table, done.stdout)

    def test_failed_tests_fail_the_run_and_stop_nothing(self):
        # (Triage has small shapes; the rest fails.)
        self.write(self.root / "build/gpu_check/bin/bin", {
            "gpu_tests": 'case $* in *tiny*) ;; *) exit 1 ;; esac'})
        done = self.run_check("--run", "1")
        self.assertEqual(done.returncode, 1)
        self.assertTrue(self.steps()["tests"].startswith("exit 1"))
        self.assertTrue(self.steps()["small"].startswith("exit 0"))

    def test_a_kernel_that_fails_is_named_and_nothing_large_runs(self):
        done = self.run_check("--run", "1", broken="yes")
        self.assertEqual(done.returncode, 1)
        self.assertIn("pass 1, layer 0: NormKernel", done.stdout)
        self.assertEqual(list(self.steps()), ["plain", "core", "memcheck"])
        self.assertIn("not measured", (self.out / "table.txt").read_text())

    def test_a_step_that_hangs_leaves_what_was_measured(self):
        done = self.run_check("--run", "1", "--seconds", "12", hang=600)
        self.assertEqual(done.returncode, 1)
        self.assertTrue(self.steps()["passes"].startswith("exit 124"))
        self.assertEqual(self.steps()["tests"], "no time was left")
        ids = [json.loads(line)["id"] for line in
               (self.out / "bench.jsonl").read_text().splitlines()]
        self.assertIn("8b.rows.1", ids)
        self.assertRegex((self.out / "table.txt").read_text(),
                         r"8B: one row, context 512 .* 5\n")

    def test_the_second_run_adds_to_the_first(self):
        self.run_check("--run", "1")
        done = self.run_check("--run", "2")
        self.assertEqual(done.returncode, 1)  # racecheck found something
        self.assertNotIn("one", self.steps())
        self.assertTrue(self.steps()["memcheck"].startswith("exit 0"))
        table = (self.out / "table.txt").read_text()
        self.assertRegex(table, r"racecheck .* 1 .* SHORT")
        self.assertIn("step passes: exit 0", table)

    def test_a_pack_needs_no_program_for_xz(self):
        folder = self.root / "build/gpu_check/bin"
        (self.root / ".gpu").mkdir()
        with tarfile.open(self.root / ".gpu/bin.tar.xz", "w:xz") as pack:
            pack.add(folder / "bin", "bin")
        shutil.rmtree(folder)
        for name in ("xz", "cmake"):
            self.write(self.tools, {name: "exit 127"})
        done = self.run_check("--run", "1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("configure", self.steps())

    def test_a_build_there_is_for_that_gpu(self):
        programs = self.root / "programs"
        (self.root / "build/gpu_check/bin/bin").rename(programs)
        self.write(self.tools, {"cmake": f'''
echo "$*" >>"{self.root}/asked"
case $1 in --build) mkdir -p "$2" && cp -r "{programs}" "$2/bin" ;; esac'''})
        done = self.run_check("--run", "1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(list(self.steps())[:2], ["configure", "build"])
        self.assertIn("-DFORETOKEN_CUDA_ARCHITECTURES=86 ",
                      (self.root / "asked").read_text())

    def test_results_stay_small_whatever_the_programs_write(self):
        self.write(self.root / "build/gpu_check/bin/bin", {
            "gpu_tests": "head -c 5000000 /dev/zero | tr '\\0' x; echo"})
        self.run_check("--run", "1")
        for path in self.out.iterdir():
            self.assertLess(path.stat().st_size, 3 << 20, path.name)

    def test_a_wrong_flag_is_not_taken_for_a_missing_gpu(self):
        self.assertEqual(self.run_check("--nonsense").returncode, 1)

    def test_without_a_gpu_it_says_so(self):
        (self.tools / "nvidia-smi").write_text("#!/bin/bash\nexit 9\n")
        done = self.run_check()
        self.assertEqual(done.returncode, 2)
        self.assertIn("no GPU", done.stderr)


if __name__ == "__main__":
    unittest.main()
