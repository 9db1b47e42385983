"""The table of tools/gpu_check: prediction, measurement and what is wanted,
line by line, from the results in a folder.

    report.py FOLDER

Reads what is there and says "not measured" for the rest, so that it can be
called after every step.
"""
import csv
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import predictions

# The library's own product; a name of predictions.SHAPES["8b"], or the head.
PRODUCTS = ("qkv", "o", "gate_up", "down")


def text_of(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def json_lines(path):
    for line in text_of(path).splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


class Results:
    """What was measured, by the ids of predictions.py."""

    def __init__(self, folder):
        self.values, self.errors, self.notes = {}, {}, []
        self.gpu = None
        self.wgmma = {}  # numbers of different bits; of a repeat, the last
        self.steps = dict(
            line.split(": ", 1)
            for line in text_of(folder / "steps.txt").splitlines()
            if ": " in line)
        self.passes = {}
        for line in json_lines(folder / "bench.jsonl"):
            self.add_bench(line)
        for line in json_lines(folder / "peers.jsonl"):
            self.add_peer(line)
        self.add_kernels(folder / "kernels.csv")
        self.derive()
        for step in ("tests", "memcheck", "racecheck"):
            status = re.match(r"exit (\d+)", self.steps.get(step, ""))
            # 124, 137: it was cut off.
            if status and status.group(1) not in ("124", "137"):
                self.values[step] = int(status.group(1) != "0")
        self.replays = list(json_lines(folder / "replay.jsonl"))

    def add_bench(self, line):
        id = line.get("id", "")
        if "error" in line:
            self.errors[id] = line["error"]
        elif id.endswith(".device"):
            self.gpu = line.get("device")
            self.passes[id] = line
        elif id.endswith(".kernels"):
            self.passes[id] = line
        elif "ms" in line:
            self.passes[id] = line["ms"]

    def add_peer(self, line):
        if "error" in line:
            self.errors[line.get("id", "")] = line["error"]
        elif line.get("id") == "matrix":
            self.values["matrix"] = line["tflop_s"]
        elif "us" in line:
            self.passes[line["id"]] = line["us"]
        elif "different" in line:
            if line["id"].startswith("mma.wgmma."):
                self.wgmma[line["id"]] = line["different"]
            self.notes.append(f"probe {line['id']}: {line['different']} of "
                              f"{line['of']} differ")
        for key in ("eager_s", "compiled_s"):
            if key in line:
                self.passes[key] = line[key]
        if "bf16_logit_error" in line:
            self.notes.append(
                "Hugging Face bf16 against fp32, gpu_tests' shape: "
                f"{line['bf16_logit_error']:.4f} of the largest logit; ours: "
                "'bf16' under logits_against_fp32 in tests.txt")

    def add_kernels(self, path):
        """Kernel times by ncu, in launch order, cut into passes at the last
        kernel of each."""
        order = next((line["rows"] for id, line in self.passes.items()
                      if id.endswith(".kernels")), None)
        layers = next((line["layers"] for id, line in self.passes.items()
                       if id.endswith(".kernels")), 0)
        rows = [row for row in csv.reader(
            line for line in text_of(path).splitlines()
            if line.startswith('"'))]
        if not order or not rows or "Kernel Name" not in rows[0]:
            return
        name = rows[0].index("Kernel Name")
        unit = rows[0].index("Metric Unit")
        value = rows[0].index("Metric Value")
        scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0,
                 "ms": 1e3, "msecond": 1e3}
        passes, current = [], []
        for row in rows[1:]:
            if len(row) <= value or row[unit] not in scale:
                continue
            current.append((row[name],
                            float(row[value].replace(",", ""))
                            * scale[row[unit]]))
            if "CommitKernel" in row[name]:
                # (A commit between passes is one kernel alone.)
                if any("Gemm" in kernel for kernel, _ in current):
                    passes.append(current)
                current = []
        for count, kernels in zip(order, passes):
            products = [us for kernel, us in kernels if "Gemm" in kernel]
            attention = [us for kernel, us in kernels
                         if "Attention" in kernel or "Merge" in kernel]
            if len(products) != 4 * layers + 1:
                continue
            for i, product in enumerate(PRODUCTS):
                times = products[i:-1:4]
                self.values[f"kernel.{product}.{count}"] = (
                    sum(times) / len(times))
            self.values[f"kernel.head.{count}"] = products[-1]
            self.values[f"kernel.attention.{count}"] = sum(attention) / layers

    def ratio(self, id, over, base):
        if over in self.passes and base in self.passes:
            self.values[id] = self.passes[over] / self.passes[base]

    def derive(self):
        if self.wgmma:
            self.values["wgmma"] = ("equal" if not any(self.wgmma.values())
                                    else "different")
        copy = self.passes.get("8b.device", {}).get("copy_gb_s")
        if copy:
            self.values["8b.copy"] = copy
        for name in ("8b", "1b"):
            one = self.passes.get(f"{name}.rows.1")
            device = self.passes.get(f"{name}.device", {})
            if one is None:
                continue
            self.values[f"{name}.rows.1"] = one
            if device.get("copy_gb_s"):
                self.values[f"{name}.share"] = (
                    device["weight_bytes"] / one * 1e-6 / device["copy_gb_s"])
        if "8b.rows.1" in self.passes:
            self.values["8b.tok_s"] = 1e3 / self.passes["8b.rows.1"]
        for rows in (8, 16, 64, 65, 128, 256, 320):
            self.ratio(f"8b.ratio.{rows}", f"8b.rows.{rows}", "8b.rows.1")
        self.ratio("8b.ratio.32x8", "8b.batch.32x8", "8b.rows.1")
        for rows in (1, 64):
            for name in ("no_overlap", "no_graphs", "neither", "long"):
                self.ratio(f"8b.{name}.{rows}", f"8b.{name}.{rows}",
                           f"8b.rows.{rows}")
        self.ratio("8b.sampled.64", "8b.sampled.64", "8b.rows.64")
        if "8b.prefill.2048" in self.passes:
            seconds = self.passes["8b.prefill.2048"] * 1e-3
            self.values["8b.prefill.2048"] = 2048 / seconds
            if "matrix" in self.values:
                shape = predictions.SHAPES["8b"]
                rate = (2e-12 * shape.layers * shape.layer_parameters() * 2048
                        / seconds)
                self.values["8b.prefill.share"] = rate / self.values["matrix"]
        for product in (*PRODUCTS, "head"):
            for rows in (1, 64, 256):
                ours = self.values.get(f"kernel.{product}.{rows}")
                theirs = self.passes.get(f"cublas.{product}.{rows}")
                if ours and theirs:
                    self.values[f"cublas.{product}.{rows}"] = ours / theirs
        for key, id in (("eager_s", "hf.eager"), ("compiled_s", "hf.compiled")):
            if key in self.passes and "8b.rows.1" in self.passes:
                self.values[id] = (self.passes[key] * 1e3
                                   / self.passes["8b.rows.1"])


def print_table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width)
                        for cell, width in zip(row, widths)).rstrip())


def main():
    results = Results(pathlib.Path(sys.argv[1]))
    gpu = next((name for name in predictions.CEILINGS
                if name in (results.gpu or "")), None)
    print(f"GPU: {results.gpu or 'none known'}")
    rows = [("line", "unit", f"predicted{f' ({gpu})' if gpu else ''}",
             "measured", "wanted", "")]
    for line in predictions.lines():
        value = results.values.get(line.id)
        verdict = ""
        # (The CPU's twin is not judged.)
        if (results.gpu is not None and value is not None
                and not isinstance(value, str)):
            good = predictions.passed(line, value)
            verdict = "" if good is None else "ok" if good else "SHORT"
        rows.append((line.what, line.unit,
                     predictions.number(line.prediction(gpu) if gpu else None),
                     "not measured" if value is None
                     else predictions.number(value),
                     predictions.wanted(line), verdict))
    print_table(rows)
    for report in results.replays:
        groups = {"all": report.get("all"), **report.get("categories", {})}
        for name, figures in groups.items():
            if figures:
                print(f"replay {report.get('mode', '')}, {report.get('shape', '')}, random "
                      f"weights, {name}: {figures['speedup']:.2f} over plain")
    for note in results.notes:
        print(note)
    for id, error in results.errors.items():
        print(f"FAILED {id}: {error}")
    for name, what in results.steps.items():
        print(f"step {name}: {what}")


if __name__ == "__main__":
    main()
