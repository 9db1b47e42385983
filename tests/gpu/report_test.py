"""tests/gpu/report.py and predictions.py: what becomes of the results of
tools/gpu_check, complete or cut off."""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests/gpu"))
import predictions
import report

DEVICE = {"id": "8b.device", "device": "NVIDIA H200",
          "weight_bytes": 15_000_000_000, "copy_gb_s": 4000.0}


def kernel_lines(*names_and_us):
    lines = ['"ID","Kernel Name","Metric Unit","Metric Value"']
    for i, (name, us) in enumerate(names_and_us):
        lines.append(f'"{i}","{name}","us","{us}"')
    return "==PROF== Connected\n" + "\n".join(lines) + "\n"


def layer(factor):
    return [("void (anonymous namespace)::GemmKernel<a>(P)", 1.0 * factor),
            ("void (anonymous namespace)::AttentionKernel<a>(P)", 5.0),
            ("void (anonymous namespace)::MergeKernel<a>(P)", 2.0)] + [
                ("void (anonymous namespace)::GemmKernel<a>(P)", us * factor)
                for us in (2.0, 3.0, 4.0)]


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, *lines):
        self.folder.joinpath(name).write_text(
            "".join(json.dumps(line) + "\n" for line in lines))

    def results(self):
        return report.Results(self.folder)

    def table(self):
        output = io.StringIO()
        old, sys.argv = sys.argv, ["report.py", str(self.folder)]
        with contextlib.redirect_stdout(output):
            report.main()
        sys.argv = old
        return output.getvalue()

    def test_nothing_measured_is_said_line_by_line(self):
        table = self.table()
        self.assertEqual(table.count("not measured"),
                         len(list(predictions.lines())))

    def test_the_probe_says_whether_wgmma_has_our_bits(self):
        lines = [{"id": "mma.wgmma.8.normal", "different": 0, "of": 9},
                 {"id": "mma.zeros.fp16", "different": 3, "of": 9}]
        self.write("peers.jsonl", *lines)
        self.assertEqual(self.results().values["wgmma"], "equal")
        lines.append({"id": "mma.wgmma.64.small", "different": 1, "of": 9})
        self.write("peers.jsonl", *lines)
        self.assertEqual(self.results().values["wgmma"], "different")
        self.assertIn("probe mma.zeros.fp16: 3 of 9 differ", self.table())

    def test_ratios_and_shares_follow_from_passes(self):
        self.write("bench.jsonl", DEVICE, {"id": "8b.rows.1", "ms": 5.0},
                   {"id": "8b.rows.64", "ms": 6.0},
                   {"id": "8b.batch.32x8", "ms": 12.0},
                   {"id": "8b.prefill.2048", "ms": 50.0},
                   {"id": "8b.no_overlap.1", "ms": 5.5})
        self.write("peers.jsonl", {"id": "matrix", "tflop_s": 800.0},
                   {"eager_s": 0.02})
        values = self.results().values
        self.assertAlmostEqual(values["8b.share"], 0.75)
        self.assertAlmostEqual(values["8b.tok_s"], 200.0)
        self.assertAlmostEqual(values["8b.ratio.64"], 1.2)
        self.assertAlmostEqual(values["8b.ratio.32x8"], 2.4)
        self.assertAlmostEqual(values["8b.no_overlap.1"], 1.1)
        self.assertAlmostEqual(values["8b.prefill.2048"], 40960.0)
        self.assertAlmostEqual(values["8b.prefill.share"], 0.7147, places=3)
        self.assertAlmostEqual(values["hf.eager"], 4.0)
        self.assertNotIn("8b.ratio.128", values)

    def test_a_line_cut_off_in_the_middle_is_left_out(self):
        self.write("bench.jsonl", {"id": "8b.rows.1", "ms": 5.0})
        with self.folder.joinpath("bench.jsonl").open("a") as file:
            file.write('{"id": "8b.rows.64", "m')
        values = self.results().values
        self.assertIn("8b.rows.1", values)
        self.assertNotIn("8b.ratio.64", values)

    def test_kernels_are_told_by_their_order_in_a_pass(self):
        self.write("bench.jsonl",
                   {"id": "kernels.kernels", "layers": 2, "rows": [512, 1, 64]})
        self.write("peers.jsonl", {"id": "cublas.qkv.64", "us": 20.0})
        commit = [("CommitKernel(P)", 0.5)]
        head = [("void GemmKernel<a>(P)", 100.0)]
        one_pass = layer(1) + layer(3) + head + commit
        self.folder.joinpath("kernels.csv").write_text(kernel_lines(
            ("PackKernel(P)", 9.0), *layer(7), *layer(7), *head, *commit,
            *commit,  # of the prompt's rows
            *one_pass, *layer(10), *layer(10), *head, *commit))
        values = self.results().values
        self.assertAlmostEqual(values["kernel.qkv.1"], 2.0)
        self.assertAlmostEqual(values["kernel.down.1"], 8.0)
        self.assertAlmostEqual(values["kernel.head.1"], 100.0)
        self.assertAlmostEqual(values["kernel.attention.1"], 7.0)
        self.assertAlmostEqual(values["kernel.qkv.64"], 10.0)
        self.assertAlmostEqual(values["cublas.qkv.64"], 0.5)

    def test_the_table_judges_what_is_wanted(self):
        self.write("bench.jsonl", DEVICE, {"id": "8b.rows.1", "ms": 6.0},
                   {"id": "8b.rows.16", "ms": 6.1},
                   {"id": "8b.long", "error": "INTERNAL: no"})
        self.folder.joinpath("steps.txt").write_text(
            "memcheck: exit 1, 5 s\nracecheck: exit 124, 9 s\n")
        table = self.table()
        self.assertRegex(table, r"predicted \(H200\)")
        self.assertRegex(table, r"share of copy bandwidth .* 0.625 .*SHORT")
        self.assertRegex(table, r"16 rows over one .* ok")
        self.assertRegex(table, r"memcheck .* SHORT")
        self.assertRegex(table, r"racecheck .* not measured")
        self.assertIn("FAILED 8b.long: INTERNAL: no", table)


class PredictionsTest(unittest.TestCase):
    def test_the_file_is_what_the_arithmetic_gives(self):
        path = pathlib.Path(predictions.__file__).with_suffix(".md")
        self.assertEqual(path.read_text(), predictions.markdown())

    def test_the_shape_has_the_models_size(self):
        # Llama-3-8B: 8.03 G parameters, less the embedding's 0.525 G.
        self.assertAlmostEqual(predictions.SHAPES["8b"].parameters() * 1e-9,
                               7.5047, places=4)

    def test_more_rows_never_take_less_time(self):
        for gpu in predictions.CEILINGS:
            for shape in predictions.SHAPES.values():
                times = [predictions.pass_s(gpu, shape, rows)
                         for rows in (1, 8, 16, 64, 65, 128, 256, 320, 2048)]
                self.assertEqual(times, sorted(times))


# Answers anything to everything: times are numbers, logits are not.
STAND_IN = """
import sys
from unittest import mock
sys.modules[__name__] = mock.MagicMock()
"""


class ComparisonTest(unittest.TestCase):
    def test_a_measurement_that_fails_stops_no_other(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("torch", "transformers"):
                (pathlib.Path(folder) / f"{name}.py").write_text(STAND_IN)
            done = subprocess.run(
                [sys.executable, "-B", report.__file__.replace(
                    "report.py", "hf_compare.py")],
                env=dict(os.environ, PYTHONPATH=folder), capture_output=True,
                text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("bf16_logit_error: TypeError", done.stderr)
        keys = [key for line in done.stdout.splitlines()
                for key in json.loads(line)]
        self.assertEqual(keys, ["matrix_tflop_s", "eager_s", "prefill_2048_s",
                                "compiled_s"])


if __name__ == "__main__":
    unittest.main()
