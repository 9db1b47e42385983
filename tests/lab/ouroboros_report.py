#!/usr/bin/env python3
"""Measures Ouroboros on the demo pair and writes results/ouroboros.md.

    tests/lab/ouroboros_report.py --bench build/release/bin/bench_draft_worker

Prompts are cut from the Python standard library of this machine and taken from
the story openings below. Drafts have no deadline here: every figure but the
times of the last table repeats to the digit with the same models, sources of
Python and instruction set, however busy the machine. Needs only the standard
library.
"""
import argparse
import json
import pathlib
import platform
import random
import shlex
import subprocess
import sys
import sysconfig
import tempfile

CODE = ["argparse", "textwrap", "heapq", "statistics", "configparser", "csv"]
STORIES = [
    "Once upon a time, there was a little girl named Lily. She loved to",
    "Tom and his dog Max went to the park. They saw a big tree and",
    "One day, a small bird could not find its nest. The bird asked",
    "Mia had a red ball. She played with it every day until",
    "The old man lived in a house near the sea. Every morning he",
    "Ben wanted to bake a cake for his mom. He took the flour and",
    "There was a cat who was afraid of the rain. One night",
    "Sara and her brother found a box in the garden. Inside the box",
    "A little fish swam in the pond. He was sad because",
    "Anna got a new bike for her birthday. She was so happy that she",
    "In the forest lived a bear who liked honey. One day the bear",
    "Sam did not want to go to bed. His dad said,",
]
PROMPT_BYTES = 600
MAX_TOKENS = 96
PASSES = [1, 2, 3, 4]
SAMPLED_PASSES = [2, 4]
ABLATIONS = [  # of the paper's Table 3, in its order
    ("none", (0, 0, 0)), ("inspiration", (1, 0, 0)), ("suffixes", (0, 1, 0)),
    ("inspiration, suffixes", (1, 1, 0)), ("suffixes, refinement", (0, 1, 1)),
    ("all", (1, 1, 1)),
]
SUFFIXES = [0, 1, 2, 3, 5]
GAMMAS = [4, 8, 12]
CHAIN_SPEEDS = ["draft_model:gamma=%d" % gamma for gamma in (1, 2, 3, 5)]
PHRASE_SPEEDS = [
    "ouroboros",
    "ouroboros:passes=1",
    "ouroboros:passes=2,window=3,beta=4,lookahead=3",
    "ouroboros:passes=1,window=3,beta=4,lookahead=0,context=1",
    "ouroboros:passes=1,window=1,beta=6,suffixes=0,lookahead=0,context=1",
    "ouroboros:passes=2,window=2,beta=4,suffixes=1,lookahead=0,context=1",
]
# What the draft worker may add to mode auto.
AUTO_PASSES = ("auto+ouroboros:passes=%d,window=2,beta=4,suffixes=1,"
               "lookahead=0,context=1")
AUTO_MODES = (["auto", "auto+phrase_pool"] +
              ["auto+draft_model:gamma=%d" % gamma for gamma in (1, 2, 3, 5)] +
              [AUTO_PASSES % passes for passes in (1, 2, 3, 4)] +
              ["auto+ouroboros:passes=1", "auto+auto"])
AUTO_NODES = 12

TEMPLATE = """# Ouroboros on the demo pair

Written by `tests/lab/ouroboros_report.py`; run it again to renew:

```
@COMMAND@
```

Commit @COMMIT@, @MACHINE@.

Target and draft are those of `tools/demo`, in one process without a network, and
drafts have no deadline: accept lengths, passes and counts repeat to the digit,
times do not. Prompts: @CODE@ pieces of Python's standard library of some
@BYTES@ bytes, @STORIES@ openings of stories; @MAX_TOKENS@ tokens each at most.
Accept length is tokens a round, bonus included; a round is one verification; a
tree has at most 64 nodes. Parameters are the paper's (gamma 12, W 20, beta 8,
K 3) unless named. In all runs together the output, @TOKENS@ tokens, was
@IDENTICAL@.

The demo pair is small and of little agreement (its card has the figures): read
the signs, not the sizes.

## At equal draft passes

Accept length where both modes run g passes of the draft model a round:
`draft_model:gamma=g` against `ouroboros:passes=g`. Temperature 0; *passes* are
those counted, the prompt's included, which a short answer makes more. Warm start:
the pool begins with what the prompts before gained.

@PASSES@

At temperature 0.8, each prompt with its seed:

@SAMPLED@

As published a draft ends when it has gamma tokens, in however many passes:

@STOP@

## Ablations (the paper's Table 3)

Accept length at gamma 12, and the phrases that candidate inspiration and
refinement gave the pool over all prompts. Without suffixes there is nothing to
refine.

@ABLATIONS@

## Warm start and the order of tasks (Table 4)

Accept length over @TASKS@ tasks of 4 prompts (four modules of Python's library,
stories). Cold: each request begins with an empty pool. Warm: with what earlier
requests gained, tasks mixed or one after the other.

@WARM@

## Suffixes (Figure 5)

Accept length and tree nodes against K at 2 draft passes a round.

@SUFFIXES@

## Matches behind the first difference (Table 1, Figure 3)

What candidate inspiration lives on. A round, without suffixes: draft tokens,
accepted ones, positions behind the first difference where draft and target agree,
runs of those by their length, and phrases found (runs of at least beta - 1).

@MATCHES@
"""

SPEED_HEADING = "\n## Speed\n"
SPEED_TEMPLATE = """
Commit @COMMIT@, all prompts, @REPEATS@ runs of every mode in turn, one request at
a time, one thread.@NOTE@ tok/s is the median, of drafting and verification
alone, by the clock and by processor time, which hardly depends on what else the
machine does. On a CPU rows are not free, neither the draft model's nor the
target's, and a pass of this target takes less than a millisecond: no mode with a
draft model need win here. `tests/lab/ouroboros_report.py --speed-only` renews
this section.

@SPEED@
"""

AUTO_HEADING = "\n## In mode auto\n"
AUTO_TEMPLATE = """
Commit @COMMIT@. Every draft is merged with that of the fused drafter and corrected by
what was accepted, as in mode `auto`; no node is priced, trees have at most
@NODES@ nodes. `auto` is the fused drafter alone, `auto+auto` what mode `auto` drafts with
the draft worker: as many passes as pay. Temperature 0; in the last column, earlier
outputs serve later requests, in the fused drafter's history and in the pools. One
run: all but `auto+auto` and tokens per second of processor time repeat to the digit.
`tests/lab/ouroboros_report.py --auto-only` renews this section.

@AUTO@
"""


def pieces(text, count):
    """`count` pieces of whole lines, evenly spread."""
    cut = []
    for i in range(count):
        begin = text.index("\n", len(text) * (2 * i + 1) // (2 * count + 1)) + 1
        cut.append(text[begin:text.index("\n", begin + PROMPT_BYTES) + 1])
    return cut


def code_prompts(library, per_module):
    return {name: pieces((library / (name + ".py")).read_text(), per_module)
            for name in CODE}


class Bench:
    def __init__(self, options):
        self.command = [str(options.bench), "--target", str(options.target),
                        "--draft", str(options.draft), "--json",
                        "--max-tokens", str(MAX_TOKENS),
                        "--max-prompts", "1000"]
        self.identical = True
        self.tokens = 0

    def run(self, prompts, modes, *flags):
        """Sums by mode, plain decoding as 'off'."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            for prompt in prompts:
                escaped = prompt.encode("unicode_escape").decode()
                file.write(escaped.replace('"', '\\"') + "\n")
            file.flush()
            done = subprocess.run(
                self.command + ["--prompts", file.name, "--modes",
                                ";".join(modes), "--threads", "1", *flags],
                check=True, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        for row in rows:
            self.identical &= row["as_off"]
            self.tokens += row["tokens"]
            for key in ("tokens", "passes", "rows", "nodes", "drafted",
                        "accepted", "later"):
                row[key + "_r"] = row[key] / max(1, row["rounds"])
        print(".", end="", file=sys.stderr, flush=True)
        return {row["mode"]: row for row in rows}


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |"
              for row in rows]
    return "\n".join(lines) + "\n"


def number(value, digits=3):
    return "%.*f" % (digits, value)


def equal_passes(bench, kinds, passes, *flags):
    """At g draft passes a round: a chain of g tokens, and Ouroboros."""
    chains = ["draft_model:gamma=%d" % g for g in passes]
    phrases = ["ouroboros:passes=%d" % g for g in passes]
    rows = []
    for kind, prompts in kinds.items():
        cold = bench.run(prompts, chains + phrases, *flags)
        warm = bench.run(prompts, phrases, "--warm-start", *flags)
        for g, chain, phrase in zip(passes, chains, phrases):
            rows.append([
                kind, g, number(cold[chain]["tokens_r"]),
                number(cold[chain]["passes_r"], 2),
                number(cold[phrase]["tokens_r"]),
                number(cold[phrase]["passes_r"], 2),
                number(warm[phrase]["tokens_r"]),
                number(warm[phrase]["passes_r"], 2)])
    return table(["prompts", "g", "draft_model", "passes", "ouroboros",
                  "passes", "ouroboros, warm start", "passes"], rows)


def published_stop(bench, kinds):
    modes = ["ouroboros:gamma=%d" % gamma for gamma in (2, 4, 8, 12)]
    rows = []
    for kind, prompts in kinds.items():
        cold = bench.run(prompts, modes)
        for mode in modes:
            row = cold[mode]
            rows.append([kind, mode] + [number(row[key], 2) for key in (
                "tokens_r", "passes_r", "rows_r", "nodes_r")])
    return table(["prompts", "mode", "accept length", "passes", "draft rows",
                  "tree nodes"], rows)


def ablations(bench, kinds):
    modes = ["ouroboros:inspiration=%d,suffixes=%d,refinement=%d" %
             (inspiration, 3 * suffixes, refinement)
             for _, (inspiration, suffixes, refinement) in ABLATIONS]
    columns = [bench.run(prompts, modes) for prompts in kinds.values()]
    rows = []
    for (name, _), mode in zip(ABLATIONS, modes):
        rows.append([name] + [
            cell for column in columns
            for cell in (number(column[mode]["tokens_r"]),
                         column[mode]["inspired"], column[mode]["refined"])])
    head = ["parts"]
    for kind in kinds:
        head += [kind, "inspired", "refined"]
    return table(head, rows)


def warm_start(bench, tasks):
    """The paper's Table 4: a pool kept over tasks, in two orders."""
    consecutive = [prompt for prompts in tasks.values() for prompt in prompts]
    shuffled = list(consecutive)
    random.Random(1).shuffle(shuffled)
    rows = []
    for mode in ("ouroboros:passes=1", "ouroboros"):
        cold = bench.run(consecutive, [mode])[mode]
        mixed = bench.run(shuffled, [mode], "--warm-start")[mode]
        blocks = bench.run(consecutive, [mode], "--warm-start")[mode]
        rows.append([mode] + [number(row["tokens_r"])
                              for row in (cold, mixed, blocks)])
    return table(["mode", "cold", "warm, shuffled", "warm, consecutive"], rows)


def suffix_sweep(bench, kinds):
    modes = ["ouroboros:passes=2,suffixes=%d" % k for k in SUFFIXES]
    columns = [bench.run(prompts, modes) for prompts in kinds.values()]
    rows = []
    for k, mode in zip(SUFFIXES, modes):
        rows.append([k] + [cell for column in columns
                           for cell in (number(column[mode]["tokens_r"]),
                                        number(column[mode]["nodes_r"], 1))])
    head = ["K"]
    for kind in kinds:
        head += [kind, "nodes"]
    return table(head, rows)


def match_counts(bench, kinds):
    modes = ["ouroboros:gamma=%d,suffixes=0" % gamma for gamma in GAMMAS]
    rows = []
    for kind, prompts in kinds.items():
        got = bench.run(prompts, modes)
        for gamma, mode in zip(GAMMAS, modes):
            row = got[mode]
            long_runs = [sum(row["runs"][n:]) / row["rounds"]
                         for n in (2, 4, 7)]
            rows.append([kind, gamma] + [number(row[key], 2) for key in (
                "drafted_r", "accepted_r", "later_r")] +
                [number(run) for run in long_runs] +
                [number(row["inspired"] / row["rounds"])])
    return table(["prompts", "gamma", "drafted", "accepted",
                  "agree later", "runs of 2+", "of 4+", "of 7+",
                  "phrases inspired"], rows)


def speed(bench, kinds, repeats):
    prompts = [prompt for some in kinds.values() for prompt in some]
    got = bench.run(prompts, CHAIN_SPEEDS + PHRASE_SPEEDS,
                    "--repeats", str(repeats))
    wall, cpu = [{mode: sorted(row[key])[len(row[key]) // 2]
                  for mode, row in got.items()}
                 for key in ("tok_s", "tok_cpu_s")]
    rows = []
    for mode in ["off"] + CHAIN_SPEEDS + PHRASE_SPEEDS:
        row = got[mode]
        rows.append([mode, number(row["tokens_r"], 2),
                     number(row["passes_r"], 2), number(row["rows_r"], 1),
                     number(row["nodes_r"], 1), number(wall[mode], 0),
                     "%.0f to %.0f" % (min(row["tok_s"]), max(row["tok_s"])),
                     number(cpu[mode], 0),
                     number(cpu[mode] / cpu["off"], 2)])
    chain = max(CHAIN_SPEEDS, key=cpu.get)
    phrase = max(PHRASE_SPEEDS, key=cpu.get)
    best = ("Best of each by processor time: `%s` %.0f tok/s, `%s` %.0f tok/s: "
            "Ouroboros %.2f times the chain, %.2f times by the clock.\n" %
            (chain, cpu[chain], phrase, cpu[phrase], cpu[phrase] / cpu[chain],
             wall[phrase] / wall[chain]))
    return table(["mode", "accept length", "passes", "draft rows",
                  "tree nodes", "tok/s", "from to", "tok/CPU s", "over off"],
                 rows) + "\n" + best


def in_auto(bench, kinds):
    nodes = ("--nodes", str(AUTO_NODES))
    cold = [bench.run(prompts, AUTO_MODES, *nodes)
            for prompts in kinds.values()]
    everything = [prompt for some in kinds.values() for prompt in some]
    warm = bench.run(everything, AUTO_MODES, "--warm-start", *nodes)
    rows = []
    for mode in AUTO_MODES:
        of_mode = [got[mode] for got in cold]
        total = {key: sum(row[key] for row in of_mode)
                 for key in ("tokens", "rounds", "passes", "rows")}
        seconds = sum(row["tokens"] / row["tok_cpu_s"][0] for row in of_mode)
        rows.append([mode] + [number(row["tokens_r"]) for row in of_mode] +
                    [number(total["passes"] / total["rounds"], 2),
                     number(total["rows"] / total["rounds"], 1),
                     number(total["tokens"] / seconds, 0),
                     number(warm[mode]["tokens_r"])])
    return table(["drafts", *kinds, "passes", "draft rows", "tok/CPU s",
                  "all, warm start"], rows)


def tables(bench, kinds, tasks):
    """Everything that repeats to the digit."""
    return {
        "PASSES": equal_passes(bench, kinds, PASSES),
        "SAMPLED": equal_passes(bench, kinds, SAMPLED_PASSES,
                                "--temperature", "0.8"),
        "STOP": published_stop(bench, kinds),
        "ABLATIONS": ablations(bench, kinds),
        "WARM": warm_start(bench, tasks),
        "SUFFIXES": suffix_sweep(bench, kinds),
        "MATCHES": match_counts(bench, kinds),
    }


def machine():
    names = [line.split(":", 1)[1].strip()
             for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return "%d cores, %s, Python %s" % (
        len(names), names[0] if names else platform.machine(),
        platform.python_version())


def split_sections(text):
    """The part that repeats to the digit, and the other sections by heading."""
    sections = {}
    for heading in (SPEED_HEADING, AUTO_HEADING):  # the last one first
        if heading in text:
            text, sections[heading] = text.split(heading)
    return text, sections


def main():
    here = pathlib.Path(__file__).resolve().parent
    demo = here.parent.parent / "tools" / "demo"
    flags = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    flags.add_argument("--bench", type=pathlib.Path, required=True)
    flags.add_argument("--target", type=pathlib.Path, default=demo / "target")
    flags.add_argument("--draft", type=pathlib.Path, default=demo / "draft")
    flags.add_argument("--library", type=pathlib.Path,
                       default=sysconfig.get_path("stdlib"))
    flags.add_argument("--repeats", type=int, default=5)
    flags.add_argument("--speed-only", action="store_true",
                       help="renew that section of --out alone")
    flags.add_argument("--auto-only", action="store_true",
                       help="renew that section of --out alone")
    flags.add_argument("--note", default="", help="on the machine's load")
    flags.add_argument("--out", type=pathlib.Path,
                       default=here / "results" / "ouroboros.md")
    options = flags.parse_args()

    bench = Bench(options)
    modules = code_prompts(pathlib.Path(options.library), 4)
    code = [prompt for some in modules.values() for prompt in some[::2]]
    kinds = {"code": code, "stories": STORIES}
    tasks = {name: modules[name] for name in CODE[:1] + CODE[3:]}
    tasks["stories"] = STORIES[:4]
    commit = subprocess.run(
        ["git", "-C", str(here), "rev-parse", "--short", "HEAD"], check=True,
        stdout=subprocess.PIPE, text=True).stdout.strip()

    parts = dict(COMMIT=commit, NOTE=options.note and " " + options.note,
                 REPEATS=str(options.repeats), NODES=str(AUTO_NODES))
    one_section = options.speed_only or options.auto_only
    text, old = "", {}
    if one_section:
        text, old = split_sections(options.out.read_text())
    else:
        parts.update(tables(bench, kinds, tasks), MACHINE=machine(),
                     COMMAND="tests/lab/" + shlex.join(
                         [pathlib.Path(sys.argv[0]).name] + sys.argv[1:]),
                     BYTES=str(PROMPT_BYTES), MAX_TOKENS=str(MAX_TOKENS),
                     CODE=str(len(code)), STORIES=str(len(STORIES)),
                     TASKS=str(len(tasks)), TOKENS=str(bench.tokens),
                     IDENTICAL="the same tokens as plain decoding"
                     if bench.identical else "NOT always the same tokens")
        text = TEMPLATE.rstrip("\n") + "\n"
    if options.auto_only or not one_section:
        parts["AUTO"] = in_auto(bench, kinds)
        old[AUTO_HEADING] = AUTO_TEMPLATE
    if options.speed_only or not one_section:
        parts["SPEED"] = speed(bench, kinds, options.repeats)
        old[SPEED_HEADING] = SPEED_TEMPLATE
    if one_section and not bench.identical:
        sys.exit("an output differs from plain decoding")
    for heading in (AUTO_HEADING, SPEED_HEADING):
        if heading in old:
            text += heading + old[heading]
    for key, value in parts.items():
        text = text.replace("@%s@" % key, value.rstrip("\n"))
    options.out.write_text(text)
    print("\n" + str(options.out), file=sys.stderr)


if __name__ == "__main__":
    main()
