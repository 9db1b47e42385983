#!/usr/bin/env python3
"""Counts Ouroboros, speculative and lookahead decoding with drafts of a chosen
agreement with their target, and times the passes that projections need.

  tests/lab/ouroboros_agreement.py --data DATA \\
      --bench build/release/bin/bench_agreement [--model SmolLM2-135M]
  tests/lab/ouroboros_agreement.py --times build/release/bin/foretoken

The first counts tokens, passes and rows: they repeat to the digit, however busy
the machine, and are kept in results/ouroboros_agreement.json, one entry for
each part, task, level and mode, so that a run that was stopped goes on.
--again counts anew; --only PART runs one part. The second measures the time of
a pass by its rows for the shapes of real models and keeps it in
results/pass_times.json: run it on a quiet machine. With --threads 1 it takes
processor time, which other load changes less. papers_report.py draws the
tables. DATA: see agreement_prompts.py. Standard library only.
"""
import argparse
import fcntl
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import agreement_prompts
from progress import Progress
from provenance import made_by

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = pathlib.Path(__file__).resolve().parent / "results"
COUNTS = RESULTS / "ouroboros_agreement.json"
TIMES = RESULTS / "pass_times.json"

# Name: path in the repository, rendering of prompts.
MODELS = {"demo": ("tools/demo/target", "none"),
          "SmolLM2-135M": (".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf",
                           "auto")}
# The rates of the paper's premise first.
LEVELS = ["0.90", "0.85", "0.95", "0.80", "0.70"]
ABLATION_LEVEL = "0.90"
ANY_LEVEL = "any"  # of what has no draft model
TASKS = list(agreement_prompts.TASKS)
PROMPTS = 6
TOKENS = 128
# As many as the paper writes.
LONG_TOKENS = 512
# Table 4 needs ten of each task in a row.
MIXED_PROMPTS, MIXED_TOKENS = 10, 32
CONTEXT_NUMBERS = [1, 4, 10]

CHAINS = [f"draft_model:gamma={gamma}" for gamma in (2, 4, 6, 8, 12, 16, 20)]
# As published, and narrow for machines on which rows are not free.
LOOKAHEADS = ["lookahead", "lookahead:window=7,ngram=4,pool=7",
              "lookahead:window=3,ngram=3,pool=3"]
PUBLISHED = "ouroboros"
SHORT = "ouroboros:gamma=4"  # fewer draft passes
LONG_MODES = ["draft_model:gamma=4", "draft_model:gamma=12", LOOKAHEADS[0],
              PUBLISHED]
NARROW = [
    "ouroboros:gamma=4,window=3,beta=4,suffixes=0,lookahead=3",
    "ouroboros:gamma=6,window=4,beta=4,suffixes=0,lookahead=2",
    "ouroboros:gamma=4,window=3,beta=5,suffixes=0,lookahead=0,context=1",
    "ouroboros:gamma=8,window=2,beta=5,suffixes=0,lookahead=0,context=1",
    "ouroboros:gamma=6,window=2,beta=8,suffixes=1,lookahead=0,context=1"]
STEPS = [
    ("speculative, gamma 12", "draft_model:gamma=12", False),
    ("+ phrases in drafting",
     "ouroboros:suffixes=0,inspiration=0,refinement=0", False),
    ("+ longer drafts by suffixes", "ouroboros:inspiration=0,refinement=0",
     False),
    ("+ phrases from verification", "ouroboros", False),
    ("+ phrases from history (warm start)", "ouroboros", True)]
PARTS = [
    ("inspiration", "ouroboros:suffixes=0,refinement=0"),
    ("inspiration, suffixes", "ouroboros:refinement=0"),
    ("suffixes, refinement", "ouroboros:inspiration=0")]
# The steps whose signs six prompts leave open, on further prompts, six by six.
SIGN_MODES = [STEPS[1][1], PARTS[0][1], STEPS[2][1], PUBLISHED]
SIGN_BLOCKS = 4
SUFFIXES = [0, 1, 2, 3, 5]
GAMMAS = [8, 16, 20]
BETAS = [4, 6, 10]
ABLATION_TASKS = ["HumanEval", "GSM8K"]
# Of a model whose passes take twenty times as long.
LARGE_TASKS = ["HumanEval", "GSM8K"]
LARGE_MODES = ["draft_model:gamma=12", PUBLISHED, NARROW[3]]

TIMED = {
    # Name: shape, layers of the whole model; None: measured whole. A layer is
    # the difference between runs of several layers and of one.
    "68M": ("llama-68m", None, None),
    "7B": ("llama-2-7b", 32, 3),
    "34B": ("d_model=7168,heads=56,kv_heads=8,d_ff=20480,vocab=64000", 60, 2)}
TIMED_ROWS = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]


def write_json(path, value):
    """One entry a line: diffs of a rerun stay readable."""
    lines = [f" {json.dumps(key)}: {json.dumps(value[key], sort_keys=True)}"
             for key in sorted(value)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


class Batch:
    """Modes of one part that share prompts, noise and flags: one process."""

    def __init__(self, part, task, level, modes, warm=False, order=""):
        self.part, self.task, self.level = part, task, level
        self.modes, self.warm, self.order = modes, warm, order

    def key(self, model, mode):
        return "/".join([model, self.part, self.task, self.level,
                         *[self.order] * bool(self.order),
                         *["warm"] * self.warm, mode])


def plan(model="demo"):
    if model != "demo":
        return [batch for task in LARGE_TASKS for batch in (
            Batch("lookahead", task, ANY_LEVEL, LOOKAHEADS[:1]),
            Batch("modes", task, ABLATION_LEVEL, LARGE_MODES))]
    batches = [Batch("lookahead", task, ANY_LEVEL, LOOKAHEADS)
               for task in TASKS]
    batches += [Batch("modes", task, level,
                      CHAINS + [PUBLISHED, SHORT] + NARROW)
                for level in LEVELS for task in TASKS]
    batches += [Batch("modes", task, ABLATION_LEVEL, [PUBLISHED], warm=True)
                for task in TASKS]
    batches += [Batch(
        "ablation", task, ABLATION_LEVEL,
        [mode for _, mode, _ in STEPS[1:3]] + [mode for _, mode in PARTS])
                for task in ABLATION_TASKS]
    batches += [Batch("signs", task, ABLATION_LEVEL, SIGN_MODES,
                      order=f"block {block}")
                for block in range(SIGN_BLOCKS) for task in ABLATION_TASKS]
    batches += [Batch("long", task, ABLATION_LEVEL, LONG_MODES)
                for task in TASKS]
    batches.append(Batch("suffixes", "HumanEval", ABLATION_LEVEL,
                         [f"ouroboros:suffixes={k}" for k in SUFFIXES]))
    batches.append(Batch("mixed", "all", ABLATION_LEVEL, [PUBLISHED],
                         order="shuffled"))
    batches += [Batch("mixed", "all", ABLATION_LEVEL, [PUBLISHED], warm=True,
                      order=str(order))
                for order in [*CONTEXT_NUMBERS, "shuffled"]]
    batches.append(Batch(
        "sweep", "HumanEval", ABLATION_LEVEL,
        [f"ouroboros:gamma={gamma}" for gamma in GAMMAS] +
        [f"ouroboros:beta={beta}" for beta in BETAS]))
    return batches


def in_turn(by_task, number):
    """Prompts of all tasks, `number` of one task and then of the next."""
    order = []
    for begin in range(0, MIXED_PROMPTS, number):
        for prompts in by_task:
            order += prompts[begin:begin + number]
    return order


class Count:
    def __init__(self, args, counts):
        self.args, self.counts = args, counts
        path, self.chat = MODELS[args.model]
        self.target = ROOT / path
        self.folder = None  # of prompt files, while it runs

    def prompts(self, batch):
        if batch.part == "signs":  # others than the six: see their spread
            return agreement_prompts.prompts(
                self.args.data, batch.task, PROMPTS * SIGN_BLOCKS)[
                    int(batch.order.split()[1])::SIGN_BLOCKS]
        if batch.task != "all":
            return agreement_prompts.prompts(self.args.data, batch.task,
                                             PROMPTS)
        by_task = [agreement_prompts.prompts(self.args.data, task,
                                             MIXED_PROMPTS) for task in TASKS]
        if batch.order.isdigit():
            return in_turn(by_task, int(batch.order))
        shuffled = in_turn(by_task, 1)
        random.Random(1).shuffle(shuffled)
        return shuffled

    def rows(self, batch, *flags):
        """JSON lines of one process, as they come."""
        path = pathlib.Path(self.folder) / "prompts.jsonl"
        agreement_prompts.write(path, self.prompts(batch), self.chat != "none")
        tokens = (LONG_TOKENS if batch.part == "long" else
                  MIXED_TOKENS if batch.task == "all" else TOKENS)
        command = [str(word) for word in (
            self.args.bench, "--target", self.target,
            "--prompts", path, "--chat", self.chat, "--max-tokens", tokens,
            "--threads", self.args.threads, *flags)]
        with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors,
                text=True) as process:
            for line in process.stdout:
                yield json.loads(line)
            if process.wait():
                errors.seek(0)
                raise RuntimeError(errors.read()[-2000:])

    def keep(self, key, row):
        """Adds to what is kept by then: parts may run side by side."""
        folder = os.open(RESULTS, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            self.counts = read_json(COUNTS)
            self.counts[key] = dict(row, made=made_by(self.args.bench))
            write_json(COUNTS, self.counts)
        finally:
            os.close(folder)

    def noise_key(self, batch, level):
        return f"{self.args.model}/noise/{batch.task}/{level}"

    def find_noise(self, batch):
        """Of all levels of the batch's prompts that are wanted."""
        levels = sorted({one.level for one in plan(self.args.model)
                         if one.task == batch.task} - {ANY_LEVEL})
        missing = [level for level in levels
                   if self.noise_key(batch, level) not in self.counts]
        if not missing:
            return
        for level, row in zip(missing, self.rows(
                batch, "--find", ",".join(missing))):
            self.keep(self.noise_key(batch, level), row)

    def run(self):
        batches = [batch for batch in plan(self.args.model)
                   if self.args.only in (None, batch.part) and any(
                       batch.key(self.args.model, mode) not in self.counts
                       for mode in batch.modes)]
        with (tempfile.TemporaryDirectory(prefix="agreement-") as folder,
              Progress(f"agreement, {self.args.model}", len(batches)) as bar):
            self.folder = folder
            for batch in batches:
                bar.begin(f"{batch.part} {batch.task} {batch.level}")
                self.run_batch(batch)
                bar.end(f"{batch.part} {batch.task} {batch.level}")

    def run_batch(self, batch):
        noise = 0
        if batch.level != ANY_LEVEL:
            self.find_noise(batch)
            noise = self.counts[self.noise_key(batch, batch.level)]["noise"]
        missing = [mode for mode in batch.modes
                   if batch.key(self.args.model, mode) not in self.counts]
        agreement = {}
        for row in self.rows(batch, "--noise", noise, "--modes",
                             ";".join(missing),
                             *["--warm-start"] * batch.warm):
            if "mode" not in row:
                agreement = row
                continue
            mode = row.pop("mode")
            if not row.pop("as_off"):
                raise RuntimeError(f"{mode}: not the tokens of plain decoding")
            if mode != "off":
                self.keep(batch.key(self.args.model, mode),
                          dict(row, **agreement))


def measured_passes(foretoken, shape, threads):
    done = subprocess.run(
        [str(foretoken), "bench", "engine", "--random", shape, "--contexts",
         "512", "--rows", ",".join(map(str, TIMED_ROWS)), "--repeats", "3",
         "--prefill", "32", "--threads", str(threads), "--json"],
        capture_output=True, text=True, check=True)
    return [row[clock(threads)] for row in json.loads(done.stdout)["passes"]]


def clock(threads):
    """One thread's processor time stands for the clock: other load hardly
    changes it."""
    return "cpu_ms" if threads == 1 else "ms"


def time_passes(foretoken, threads, again):
    """Milliseconds of a pass by rows, at 512 tokens of context."""
    times = {} if again else read_json(TIMES)
    missing = [name for name in TIMED if name not in times]
    with Progress("pass times", len(missing)) as bar:
        for name in missing:
            shape, layers, several = TIMED[name]
            bar.begin(name)
            if layers is None:
                whole = measured_passes(foretoken, shape, threads)
            else:
                one, more = [measured_passes(
                    foretoken, f"{shape},layers={count}", threads)
                    for count in (1, several)]
                whole = [first + (layers - 1) * (last - first) / (several - 1)
                         for first, last in zip(one, more)]
            times[name] = {
                "shape": shape, "layers": layers, "measured_layers": several,
                "threads": threads, "clock": clock(threads),
                "rows": TIMED_ROWS,
                "ms": [round(ms, 3) for ms in whole],
                "made": made_by(foretoken)}
            write_json(TIMES, times)
            bar.end(name)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bench", help="bench_agreement")
    parser.add_argument("--data", help="folder with prompts/")
    parser.add_argument("--model", choices=MODELS, default="demo")
    parser.add_argument("--only", help="one part: lookahead, modes, ablation, "
                        "signs, long, suffixes, sweep or mixed")
    parser.add_argument("--again", action="store_true",
                        help="count or measure anew what is kept")
    parser.add_argument("--times", metavar="FORETOKEN",
                        help="measure passes instead")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.times:
        time_passes(args.times, args.threads, args.again)
        return 0
    if not args.bench or not args.data:
        parser.error("want --bench and --data, or --times")
    if not (ROOT / MODELS[args.model][0]).exists():
        print(f"skipped: {MODELS[args.model][0]} is missing", file=sys.stderr)
        return 0
    counts = read_json(COUNTS)
    if args.again:
        counts = {key: row for key, row in counts.items()
                  if not key.startswith(args.model + "/")}
        write_json(COUNTS, counts)
    Count(args, counts).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
