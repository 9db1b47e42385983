#!/usr/bin/env python3
"""The speed-up by the clock of every mode on Spec-Bench: speedup.md.

  tests/bench/speedup_report.py --foretoken build/release/bin/foretoken \
      --data DATA --work FOLDER [--only 660m-bf16 ...]
  tests/bench/speedup_report.py             draws the report again
  tests/bench/speedup_report.py --check     what is committed is so drawn

DATA holds recorded/, reference_runs/, corpora/ and tokenizers/llama2. Passes are
real, of random weights; a recording decides what is accepted (`foretoken bench
replay`), and all modes take turns beside the same plain decoding. Turns that are
measured are kept in FOLDER, so that a run that was stopped goes on behind them.
results/speedup.json keeps the sums with the commit of the binary, the machine
and its load; intervals are of a bootstrap over questions. With a GPU the same
command measures there (--backend cuda).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

import speedup_tables
from provenance import made_by

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
RUNS = RESULTS / "speedup.json"
REPORT = RESULTS / "speedup.md"
RECORDED = "data/recorded/specbench_vicuna-7b-v1.3.jsonl.gz"
TOKENIZER = "data/tokenizers/llama2/tokenizer.model"
STEPS = "data/reference_runs/specbench_speculative_runs.jsonl.gz"
PRIOR_BYTES = 10_000_000
SMALL = "d_model=2048,layers=12,heads=32,kv_heads=4,d_ff=5632,vocab=32000"
# Shape, type of the weights, turns of each category (0: all) and the longest
# output. Of large shapes a part: a token of 8 B parameters takes a second here.
SETTINGS = {
    "660m-bf16": (SMALL, "bf16", 0, 0),
    "660m-q4_0": (SMALL, "q4_0", 0, 0),
    "660m-q8_0": (SMALL, "q8_0", 0, 0),
    "llama-2-7b-q4_0": ("llama-2-7b", "q4_0", 2, 48),
    "llama-2-7b-bf16": ("llama-2-7b", "bf16", 1, 32),
    "llama-3-8b-q4_0": ("llama-3-8b", "q4_0", 2, 48),
}
DRAFT = "vicuna-68m draft (SpS), run A"


class Measure:
    def __init__(self, args):
        self.args = args
        self.folder = pathlib.Path(args.work)
        self.folder.mkdir(parents=True, exist_ok=True)
        data = self.folder / "data"
        if data.is_symlink():
            data.unlink()
        data.symlink_to(pathlib.Path(args.data).resolve())
        self.foretoken = str(pathlib.Path(args.foretoken).resolve())

    def run(self, *words):
        """Runs foretoken in the folder, where all names are relative."""
        done = subprocess.run([self.foretoken, *map(str, words)],
                              cwd=self.folder, stdout=subprocess.PIPE,
                              text=True, check=False)
        if done.returncode:
            sys.exit(f"foretoken {' '.join(map(str, words))}: status "
                     f"{done.returncode}")
        return done.stdout

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
            {"name": "auto, prior", "mode": "auto", **prior},
            {"name": "auto, prior, whole trees", "mode": "auto", **prior,
             **whole}]

    def replay(self, key, *words):
        shape, weights, turns, longest = SETTINGS[key]
        turns = turns if self.args.turns is None else self.args.turns
        longest = longest if self.args.longest is None else self.args.longest
        out = self.run(
            "bench", "replay", "--random", shape, "--weights", weights,
            "--backend", self.args.backend, "--threads", self.args.threads,
            "--recorded", RECORDED, "--tokenizer", TOKENIZER,
            "--requests-per-category", turns, "--max-new-tokens", longest,
            *words, "--json")
        return [json.loads(line) for line in out.splitlines()]

    def setting(self, key):
        """Measures a setting; returns what speedup.json keeps of it."""
        before = os.getloadavg()[0]
        (self.folder / "variants.json").write_text(
            json.dumps(self.variants(), indent=1), encoding="utf-8")
        reports = self.replay(key, "--variants", "variants.json", "--turns",
                              f"{key}.jsonl")
        runs = speedup_tables.summaries(self.folder / f"{key}.jsonl")
        if not self.args.no_draft_model:
            self.replay(key, "--mode", "recorded", "--steps", STEPS,
                        "--method", DRAFT, "--turns", f"{key}-draft.jsonl")
            draft = speedup_tables.summaries(self.folder /
                                             f"{key}-draft.jsonl")
            runs["vicuna-68m, recorded"] = draft["recorded"]
        shape, weights, turns, longest = SETTINGS[key]
        return {"shape": shape, "weights": weights,
                "turns_per_category": self.args.turns or turns,
                "longest_output": self.args.longest or longest,
                "backend": reports[0]["backend"],
                "threads": self.args.threads,
                "tree_nodes": self.args.tree_nodes,
                "pass_ms": [[cost["rows"], cost["ms"]]
                            for cost in reports[0]["pass_costs"]],
                "made": {**made_by(self.foretoken), "load": round(before, 1)},
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
            RUNS.write_text(json.dumps(runs, indent=1) + "\n",
                            encoding="utf-8")
    REPORT.write_text(speedup_tables.drawn(RESULTS), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
