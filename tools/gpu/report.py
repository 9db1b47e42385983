"""Prints the table of tools/gpu_check from the logs of its steps."""
import json
import pathlib
import sys


def read_json(path):
    """The last line of `path` that is a JSON object, or {}."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return {}


def pass_of(bench, rows, key="passes"):
    for entry in bench.get(key, []):
        if entry["rows"] == rows:
            return entry
    return None


class Table:
    def __init__(self):
        self.rows = []

    def add(self, what, value, want, good=None):
        verdict = "" if good is None else "ok" if good else "SHORT"
        self.rows.append((what, value, want, verdict))

    def missing(self, what, want):
        self.rows.append((what, "not measured", want, ""))

    def print(self):
        widths = [max(len(row[i]) for row in self.rows) for i in range(4)]
        for row in self.rows:
            print("  ".join(cell.ljust(width)
                            for cell, width in zip(row, widths)).rstrip())


def add_engine(table, name, bench, share_wanted):
    one = pass_of(bench, 1)
    if one is None:
        table.missing(f"{name}: one row", f">= {share_wanted:.0%} of copies")
        return
    share = bench["bandwidth_share"]
    table.add(f"{name}: copy bandwidth", f"{bench['copy_bandwidth_gb_s']:.0f} GB/s",
              "")
    table.add(f"{name}: one row, context 512",
              f"{one['ms']:.3f} ms, {1e3 / one['ms']:.0f} tok/s, {share:.0%}",
              f">= {share_wanted:.0%} of copies", share >= share_wanted)
    for rows, most in ((16, 1.05), (64, 1.15)):
        entry = pass_of(bench, rows)
        if entry:
            table.add(f"{name}: {rows} rows over one", f"{entry['ratio']:.3f}",
                      f"<= {most}", entry["ratio"] <= most)
    batch = pass_of(bench, 8, "batches")
    if batch:
        table.add(f"{name}: 32 sessions of 8 rows over one row",
                  f"{batch['ratio']:.3f}", "<= 2.5", batch["ratio"] <= 2.5)
    table.add(f"{name}: prefill of 2048",
              f"{bench['prefill_tokens_per_s']:.0f} tok/s", "")


def add_peer(table, bench, peer):
    one = pass_of(bench, 1)
    for key, name, want in (("eager_s", "eager", 1.5),
                            ("compiled_s", "compiled, static cache", 1.0)):
        what = f"8b: over Hugging Face {name}"
        if one is None or key not in peer:
            table.missing(what, f">= {want}")
            continue
        ratio = peer[key] * 1e3 / one["ms"]
        table.add(what, f"{ratio:.2f} ({peer[key] * 1e3:.3f} ms)", f">= {want}",
                  ratio >= want)
    if one is not None and "matrix_tflop_s" in peer:
        # 7.0 G parameters in the matrices that every prompt row passes through.
        rate = bench["prefill_tokens_per_s"] * 2 * 7.0e9 * 1e-12
        share = rate / peer["matrix_tflop_s"]
        table.add("8b: prefill over the matrix rate",
                  f"{share:.2f} of {peer['matrix_tflop_s']:.0f} TFLOP/s",
                  ">= 0.5", share >= 0.5)
    if "bf16_logit_error" in peer:
        table.add("Hugging Face bf16 against fp32, gpu_tests' shape",
                  f"{peer['bf16_logit_error']:.4f}",
                  "ours: 'bf16' under logits_against_fp32")


def add_replays(table, out):
    for path in sorted(out.glob("replay_*.log")):
        report = read_json(path)
        mode = path.stem.removeprefix("replay_")
        if "all" not in report:
            table.missing(f"replay {mode}, 7b shape, random weights", "")
            continue
        groups = {"all": report["all"], **report.get("categories", {})}
        for name, figures in groups.items():
            table.add(f"replay {mode}, 7b shape, random weights: {name}",
                      f"{figures['speedup']:.2f} over plain", "")


def main():
    out = pathlib.Path(sys.argv[1])
    table = Table()
    bench = read_json(out / "bench_8b.log")
    steps = (out / "steps").read_text()
    for name in ("tests", "memcheck", "racecheck"):
        line = next((s for s in steps.splitlines()
                     if s.startswith(name + ":")), None)
        if line is None:
            table.missing(name, "exit 0")
        else:
            table.add(name, line.split(": ", 1)[1], "exit 0",
                      "exit 0," in line)
    add_engine(table, "8b", bench, 0.75)
    add_engine(table, "1b", read_json(out / "bench_1b.log"), 0.55)
    add_peer(table, bench, read_json(out / "hf.log"))
    add_replays(table, out)
    print()
    table.print()


if __name__ == "__main__":
    main()
