#!/usr/bin/env python3
"""The speed-up by the clock of every mode on Spec-Bench: speedup.md.

  tests/lab/speedup_report.py --foretoken build/release/bin/foretoken \
      --data DATA --work FOLDER [--only 660m-bf16 ...]
  tests/lab/speedup_report.py             draws the report again
  tests/lab/speedup_report.py --check     what is committed is so drawn

DATA holds recorded/, reference_runs/, corpora/ and tokenizers/llama2. Passes are
real, of random weights; a recording decides what is accepted (`foretoken-lab
replay`), and all modes take turns beside the same plain decoding. A setting with
a window decodes that many tokens of each output, at --windows random places, so
that every turn can be measured on a slow machine; it prefills nothing, and no
draft model runs beside. Turns that are measured are kept in FOLDER, so that a run
that was stopped goes on behind them. results/speedup.json keeps the sums with
the commit of the binary, the machine and its load; intervals are of a bootstrap
over questions. With a GPU the same command measures there (--backend cuda).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import typing

import speedup_tables
from provenance import lab_of, made_by

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
RUNS = RESULTS / "speedup.json"
REPORT = RESULTS / "speedup.md"
RECORDED = "data/recorded/specbench_vicuna-7b-v1.3.jsonl.gz"
TOKENIZER = "data/tokenizers/llama2/tokenizer.model"
STEPS = "data/reference_runs/specbench_speculative_runs.jsonl.gz"
PRIOR_BYTES = 10_000_000
SMALL = "d_model=2048,layers=12,heads=32,kv_heads=4,d_ff=5632,vocab=32000"


class Setting(typing.NamedTuple):
    shape: str
    weights: str  # their type
    turns: int = 0  # of each category; 0: all
    longest: int = 0  # output, tokens; 0: no limit
    window: int = 0  # tokens of each output that are decoded; 0: all


# Large shapes run only some turns: a pass of 8 B parameters takes 0.2 s or more
# on a CPU.
SETTINGS = {
    "660m-bf16": Setting(SMALL, "bf16", turns=8, longest=96),
    "660m-q4_0": Setting(SMALL, "q4_0", turns=8, longest=96),
    "660m-bf16-all": Setting(SMALL, "bf16", window=8),
    "660m-q4_0-all": Setting(SMALL, "q4_0", window=8),
    "660m-q8_0-all": Setting(SMALL, "q8_0", window=8),
    "llama-2-7b-q4_0": Setting("llama-2-7b", "q4_0", turns=4, window=8),
    "llama-2-7b-q8_0": Setting("llama-2-7b", "q8_0", turns=4, window=8),
    "llama-2-7b-bf16": Setting("llama-2-7b", "bf16", turns=4, window=8),
    "llama-3-8b-q4_0": Setting("llama-3-8b", "q4_0", turns=4, window=8),
}
DRAFT = "vicuna-68m draft (SpS), run A"


class Measure:
    def __init__(self, args):
        self.args = args
        self.load = os.getloadavg()[0]  # before all of its own
        self.folder = pathlib.Path(args.work)
        self.folder.mkdir(parents=True, exist_ok=True)
        data = self.folder / "data"
        if data.is_symlink():
            data.unlink()
        data.symlink_to(pathlib.Path(args.data).resolve())
        self.foretoken = str(pathlib.Path(args.foretoken).resolve())

    def run(self, *words, binary=None):
        """Runs foretoken, or another binary, in the folder, where all names
        are relative."""
        command = [binary or self.foretoken, *map(str, words)]
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE,
                              text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: status {done.returncode}")
        return done.stdout

    def lab(self, *words):
        return self.run(*words, binary=lab_of(self.foretoken))

    def corpora(self):
        return sorted(str(path.relative_to(self.folder)) for path in
                      (self.folder / "data/corpora").glob("chat_*.jsonl.gz"))

    def prepare(self):
        """The prior and the CREST datastore, of text that leaves out the
        questions that are measured."""
        if not (self.folder / "chat.prior").exists():
            self.run("prior", "build", "--corpus", *self.corpora(),
                     "--exclude-ids", RECORDED, "--tokenizer", TOKENIZER,
                     "--max-bytes", PRIOR_BYTES, "--out", "chat.prior")
        if not (self.folder / "chat.crest").exists():
            self.run("crest", "build", "--corpus", *self.corpora(),
                     "--exclude-ids", RECORDED, "--tokenizer", TOKENIZER,
                     "--max-n", 4, "--top", 16000, "--skip-invalid", "--out",
                     "chat.crest")

    def variants(self):
        """Modes without a price verify whole trees: of as many nodes as cost
        hardly more than one row here."""
        small = {"max_tree_nodes": self.args.tree_nodes}
        whole = {**small, "node_price": "none"}
        prior = {"prior": "chat.prior"}
        return [
            {"name": "prompt lookup", "mode": "prompt_lookup", **small},
            {"name": "n-gram trie, as published", **small, "mode":
             f"ngram_trie:n=13,lp=3,learn=0,num_draft={self.args.tree_nodes}"},
            {"name": "n-gram trie, learning", **small, "mode":
             f"ngram_trie:learn=1,num_draft={self.args.tree_nodes}"},
            {"name": "CREST", "mode": "crest", "crest": "chat.crest", **small},
            {"name": "REST", "mode": "rest", "rest_corpus": self.corpora(),
             "exclude_ids": [RECORDED], **small},
            {"name": "auto", "mode": "auto"},
            {"name": "auto, whole trees", "mode": "auto", **whole},
            {"name": "auto, CREST", "mode": "auto", "crest": "chat.crest"},
            {"name": "auto, prior", "mode": "auto", **prior},
            {"name": "auto, prior, whole trees", "mode": "auto", **prior,
             **whole}]

    def replay(self, setting, *words):
        out = self.lab(
            "replay", "--random", setting.shape,
            "--weights", setting.weights, "--backend", self.args.backend,
            "--threads", self.args.threads, "--recorded", RECORDED,
            "--tokenizer", TOKENIZER, "--requests-per-category", setting.turns,
            "--max-new-tokens", setting.longest, *words, "--json")
        return [json.loads(line) for line in out.splitlines()]

    def accept_length(self, variant):
        """Of whole outputs, without a model; None where the clock decides."""
        if variant["mode"] == "auto" and "node_price" not in variant:
            return None
        flags = [word for flag, of in (
            ("--prior", "prior"), ("--crest", "crest"),
            ("--rest-corpus", "rest_corpus"), ("--exclude-ids", "exclude_ids"))
            if of in variant for word in (flag, *(
                variant[of] if isinstance(variant[of], list)
                else [variant[of]]))]
        words = ["--recorded", RECORDED, "--tokenizer", TOKENIZER, "--mode",
                 variant["mode"], "--max-tree-nodes", variant["max_tree_nodes"],
                 *flags, "--json"]
        out = (self.lab("replay-rest", *words) if variant["mode"] == "rest" else
               self.run("replay", *words))
        return json.loads(out)["sets"][0]["accept_length"]

    @staticmethod
    def turns_file(key, seed):
        return f"{key}-{SETTINGS[key].window}-{seed}.jsonl"

    def windows(self, key, setting):
        """A place in each output after the other. What is accepted there stands
        beside what is accepted in whole outputs."""
        for seed in range(self.args.windows):
            reports = self.replay(
                setting, "--variants", "variants.json", "--turns",
                self.turns_file(key, seed), "--window", setting.window,
                "--window-seed", seed)
        runs = speedup_tables.summaries(*[
            self.folder / self.turns_file(key, seed)
            for seed in range(self.args.windows)])
        # `foretoken replay` replays the whole file, so its accept length is
        # comparable only if all turns were measured.
        for variant in [] if setting.turns or setting.longest else \
                self.variants():
            runs[variant["name"]]["whole_accept_length"] = \
                self.accept_length(variant)
        return reports, runs

    def whole_outputs(self, key, setting):
        reports = self.replay(setting, "--variants", "variants.json", "--turns",
                              f"{key}.jsonl")
        runs = speedup_tables.summaries(self.folder / f"{key}.jsonl")
        if not self.args.no_draft_model:
            self.replay(setting, "--mode", "recorded", "--steps", STEPS,
                        "--method", DRAFT, "--turns", f"{key}-draft.jsonl")
            draft = speedup_tables.summaries(self.folder /
                                             f"{key}-draft.jsonl")
            runs["vicuna-68m, recorded"] = draft["recorded"]
        return reports, runs

    def setting(self, key):
        """Measures a setting; returns what speedup.json keeps of it."""
        setting = SETTINGS[key]
        if self.args.turns is not None:
            setting = setting._replace(turns=self.args.turns)
        if self.args.longest is not None:
            setting = setting._replace(longest=self.args.longest)
        (self.folder / "variants.json").write_text(
            json.dumps(self.variants(), indent=1), encoding="utf-8")
        reports, runs = (self.windows if setting.window else
                         self.whole_outputs)(key, setting)
        return {"shape": setting.shape, "weights": setting.weights,
                "turns_per_category": setting.turns,
                "longest_output": setting.longest, "window": setting.window,
                "windows": self.args.windows if setting.window else 0,
                "backend": reports[0]["backend"],
                "threads": self.args.threads,
                "tree_nodes": self.args.tree_nodes,
                "pass_ms": [[cost["rows"], cost["ms"]]
                            for cost in reports[0]["pass_costs"]],
                "made": {**made_by(self.foretoken), "load": round(self.load, 1)},
                "variants": runs}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--foretoken", default="build/release/bin/foretoken")
    parser.add_argument("--data", help="measure")
    parser.add_argument("--work", default=".cache/speedup",
                        help="folder of turns, prior and datastore")
    parser.add_argument("--only", nargs="+", choices=SETTINGS,
                        default=list(SETTINGS))
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--tree-nodes", type=int, default=8,
                        help="nodes of trees without a price: as many as a "
                        "pass takes at little cost; 8 on a CPU, 64 on a GPU")
    parser.add_argument("--turns", type=int,
                        help="turns of each category; 0: all")
    parser.add_argument("--longest", type=int,
                        help="longest output, tokens; 0: no limit")
    parser.add_argument("--windows", type=int, default=1,
                        help="places in each output, where a setting has a "
                        "window")
    parser.add_argument("--no-draft-model", action="store_true")
    parser.add_argument("--check", action="store_true",
                        help="compare the committed files, write nothing")
    args = parser.parse_args()
    if args.check:
        faults = speedup_tables.faults(RESULTS)
        print("\n".join(faults) or "speedup.md is what the JSON gives")
        return 1 if faults else 0
    if args.data:
        measure = Measure(args)
        measure.prepare()
        for key in args.only:
            runs = json.loads(RUNS.read_text()) if RUNS.exists() else {}
            runs[key] = measure.setting(key)
            runs = {name: runs[name] for name in SETTINGS if name in runs}
            RUNS.write_text(json.dumps(runs, indent=1) + "\n",
                            encoding="utf-8")
    REPORT.write_text(speedup_tables.drawn(RESULTS), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
