#!/usr/bin/env python3
"""Measures what keeping the KV of a draft's chain between passes saves, and
writes results/draft_kv.json and results/draft_kv.md.

    tests/lab/draft_kv_report.py --bench build/release/bin/bench_draft_worker
    tests/lab/draft_kv_report.py --render

Every mode runs beside itself with an engine that computes the chain again in
each pass, in turn, on the prompts of ouroboros_report.py. Rows repeat to the
digit; times are given as ratios of runs that follow each other. A pair of
models that draft_kv.json holds from the same commit is not measured again.
--render draws the Markdown from the JSON. Needs only the standard library.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig

from ouroboros_report import STORIES, Bench, code_prompts, number, table
from provenance import made_by

CHAINS = ["draft_model:gamma=%d" % gamma for gamma in (1, 3, 5, 8, 12)]
PHRASES = [
    "ouroboros:gamma=5",
    "ouroboros:gamma=12",
    "ouroboros:gamma=5,window=3,beta=4,lookahead=0,context=1",
    "ouroboros:gamma=12,window=3,beta=4,lookahead=0,context=1",
]
HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results"

TEMPLATE = """# The KV of a draft's chain, kept from pass to pass

Written by `tests/lab/draft_kv_report.py` from `draft_kv.json`, which it measures:

```
tests/lab/draft_kv_report.py --bench build/release/bin/bench_draft_worker
```

Each pass of a draft computes rows for new tokens only: the chain's earlier tokens
have KV, and the next round drops that of tokens it does not commit. *Computed again*
is the same engine where each pass has rows for the whole chain. Both draft the same
tokens: rounds, tokens, passes and tree nodes of every line are equal, and every
output is that of plain decoding. Rows are per round, those of prompts included, and
repeat to the digit. Draft time is the time of drafting with the kept KV over that of
computing again: the median, least and largest of pairs of runs that follow each
other, one thread, by processor time and by the clock.
"""
SECTION = """
## @TITLE@

@TEXT@ @REPEATS@ pairs of runs. Commit @COMMIT@, @MACHINE@, load @LOAD@.

@TABLE@
"""
PAIRS = {
    "demo": (
        "The demo pair",
        "Target and draft of `tools/demo`, @PROMPTS@ prompts, @TOKENS@ tokens "
        "each at most, temperature 0. A pass of this draft model takes so "
        "little that its fixed part weighs."),
    "smollm2": (
        "SmolLM2-135M as its own draft",
        "A draft model of 135 million parameters in 4 bits, which this target, "
        "the same model, nearly always accepts: @PROMPTS@ prompts, @TOKENS@ "
        "tokens each at most, temperature 0."),
    "demo_8": (
        "The demo pair, 8 sessions at once",
        "As above, with @PROMPTS@ prompts and 8 sessions that draft for each "
        "of them in common passes; rows are those of one session."),
    "smollm2_8": (
        "SmolLM2-135M, 8 sessions at once",
        "As above, with @PROMPTS@ prompts of @TOKENS@ tokens at most and 8 "
        "sessions that draft for each of them in common passes; rows are those "
        "of one session."),
}


def commit():
    """The commit of the sources, marked where they were changed."""
    def git(*words):
        return subprocess.run(["git", "-C", str(HERE), *words], check=True,
                              stdout=subprocess.PIPE, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--",
                  "*.cc", "*.h")
    return git("rev-parse", "--short", "HEAD") + (" changed" if changed else "")


def paired(modes):
    return [name for mode in modes for name in (mode, "recompute:" + mode)]


def ratios(kept, computed, key):
    return sorted(a / b for a, b in zip(kept[key], computed[key]))


def measure(bench, prompts, modes, repeats, sessions):
    got = bench.run(prompts, paired(modes), "--repeats", str(repeats),
                    "--sessions", str(sessions))
    rows = []
    for mode in modes:
        kept, computed = got[mode], got["recompute:" + mode]
        for key in ("rounds", "tokens", "passes", "nodes"):
            if kept[key] != computed[key]:
                sys.exit(f"{mode}: {kept[key]} {key}, {computed[key]} when "
                         "computed again")
        rows.append({
            "mode": mode,
            **{key: kept[key] for key in ("rounds", "tokens", "passes")},
            "rows": kept["rows"], "rows_again": computed["rows"],
            "time": ratios(kept, computed, "draft_times"),
            "cpu_time": ratios(kept, computed, "draft_cpu_times")})
    if not bench.identical:
        sys.exit("an output differs from plain decoding")
    return rows


def spread(values):
    return (f"{statistics.median(values):.2f} "
            f"({values[0]:.2f} to {values[-1]:.2f})")


def render(results):
    text = TEMPLATE
    for name, (title, about) in PAIRS.items():
        if name not in results["pairs"]:
            continue
        pair = results["pairs"][name]
        rows = [[row["mode"], number(row["tokens"] / row["rounds"], 2),
                 number(row["passes"] / row["rounds"], 2),
                 number(row["rows_again"] / row["rounds"], 1),
                 number(row["rows"] / row["rounds"], 1),
                 number(row["rows"] / row["rows_again"], 2),
                 spread(row["cpu_time"]), spread(row["time"])]
                for row in pair["rows"]]
        section = SECTION.replace("@TEXT@", about)
        for key, value in {
                "TITLE": title, "PROMPTS": pair["prompts"],
                "TOKENS": pair["max_tokens"],
                "REPEATS": len(pair["rows"][0]["time"]),
                "COMMIT": pair["commit"],
                "MACHINE": pair["machine"], "LOAD": pair["load"],
                "TABLE": table(["mode", "accept length", "passes",
                                "rows, computed again", "rows, kept", "ratio",
                                "draft time, processor",
                                "draft time, clock"], rows).rstrip()}.items():
            section = section.replace(f"@{key}@", str(value))
        text += section
    return text


def main():
    demo = HERE.parent.parent / "tools" / "demo"
    flags = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    flags.add_argument("--bench", type=pathlib.Path)
    flags.add_argument("--render", action="store_true",
                       help="draw the Markdown from the JSON alone")
    flags.add_argument("--smollm2", type=pathlib.Path, default=HERE.parent.parent
                       / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf",
                       help="left out where there is no such file")
    flags.add_argument("--library", type=pathlib.Path,
                       default=sysconfig.get_path("stdlib"))
    flags.add_argument("--repeats", type=int, default=7)
    flags.add_argument("--pairs", nargs="*", choices=PAIRS,
                       help="measure these alone")
    flags.add_argument("--again", action="store_true",
                       help="measure pairs again that are there")
    flags.add_argument("--out", type=pathlib.Path,
                       default=RESULTS / "draft_kv.json")
    options = flags.parse_args()
    if not options.render and options.bench is None:
        flags.error("--bench or --render is needed")

    results = {"pairs": {}}
    if options.out.exists():
        results = json.loads(options.out.read_text())
    if not options.render:
        modules = code_prompts(pathlib.Path(options.library), 4)
        code = [prompt for some in modules.values() for prompt in some[::2]]
        runs = {"demo": (demo / "target", demo / "draft", code + STORIES, 96,
                         CHAINS + PHRASES)}
        if options.smollm2.exists():
            runs["smollm2"] = (options.smollm2, options.smollm2, STORIES[:4],
                               48, CHAINS[2:] + PHRASES[2:])
        runs["demo_8"] = runs["demo"][:2] + (STORIES, 96, CHAINS[2:])
        if "smollm2" in runs:
            runs["smollm2_8"] = runs["smollm2"][:2] + (
                STORIES[:2], 32, [CHAINS[2], CHAINS[4]])
        for name, (target, draft, prompts, tokens, modes) in runs.items():
            old = results["pairs"].get(name, {})
            if options.pairs and name not in options.pairs:
                continue
            if not options.again and old.get("commit") == commit():
                continue
            bench = Bench(argparse.Namespace(bench=options.bench, target=target,
                                             draft=draft))
            bench.command[bench.command.index("--max-tokens") + 1] = str(tokens)
            results["pairs"][name] = {
                **made_by(options.bench), "commit": commit(),
                "load": round(os.getloadavg()[0], 1), "prompts": len(prompts),
                "max_tokens": tokens,
                "rows": measure(bench, prompts, modes, options.repeats,
                                8 if name.endswith("_8") else 1)}
            options.out.write_text(json.dumps(results, indent=1) + "\n")
    options.out.with_suffix(".md").write_text(render(results))


if __name__ == "__main__":
    main()
