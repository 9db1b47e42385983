#!/usr/bin/env python3
"""Sets the tables and figures of the three papers beside ours: papers.md.

  tests/lab/papers_report.py --foretoken build/release/bin/foretoken \
      --data DATA
  tests/lab/papers_report.py --all --data DATA --python-corpus FOLDER
  tests/lab/papers_report.py              draws the report again
  tests/lab/papers_report.py --check      what is committed is so drawn

DATA holds recorded/ (common/drafting/recorded_set.h has the format),
reference_runs/, corpora/ and tokenizers/llama2/tokenizer.model. What was
measured is kept in results/papers_runs.json with the commit of the binary, the
machine and its load, so that a run that was stopped goes on where it was;
--again measures anew. results/papers_published.json holds the papers' figures.
CREST's points are those of crest_report.py and crest_lookups.py, Ouroboros'
those of ouroboros.md and of ouroboros_agreement.py.
papers.json holds every table; papers.md and the section on the papers in docs/results.md are
drawn from it. Standard library only; no text of a recording is written.
"""
import argparse
import collections
import concurrent.futures
import gzip
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

import papers_all
import papers_check
import papers_ngram_trie
import papers_readme
import papers_tables
from progress import Progress
from provenance import lab_of, made_by

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
RUNS = RESULTS / "papers_runs.json"
SPECBENCH = "specbench_vicuna-7b-v1.3.jsonl.gz"
SETS = {
    "specbench": SPECBENCH,
    "mtbench": "mtbench_vicuna-7b-v1.5.jsonl.gz",
    "shopping": "shopping_vicuna-7b-v1.3.jsonl.gz",
    "classeval": "classeval_codellama-13b-instruct.jsonl.gz",
    "financebench": "financebench_gpt-4-turbo-oracle.jsonl.gz",
    "code": "code_wizardcoder-33b-v1.1.jsonl.gz",
    "gsm8k": "gsm8k_gpt3-175b-finetuned.jsonl.gz",
}
PUBLISHED = "ngram_trie:learn=0"
LEARNING = "ngram_trie:learn=1,num_draft=64"
PRIOR_BYTES = 10_000_000


class Measure:
    """The steps of a run; a step whose result is kept is not run again."""

    def __init__(self, args, runs):
        self.args, self.runs = args, runs
        self.data = pathlib.Path(args.data)
        self.folder = None  # of temporary files, while it runs
        self.steps = []

    def foretoken(self, *words, binary=None):
        command = ["nice", "-n", "10", binary or self.args.foretoken,
                   *[str(word) for word in words]]
        done = subprocess.run(command, capture_output=True, text=True,
                              check=False)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(command)}\n{done.stderr[-2000:]}")
        return done.stdout

    def replay(self, recorded, mode, nodes, *flags, distribution=False):
        words = ["--recorded", recorded, "--tokenizer",
                 self.data / "tokenizers/llama2/tokenizer.model", "--mode",
                 mode, "--max-tree-nodes", nodes, *flags, "--json"]
        out = (self.foretoken("replay-rest", *words,
                              binary=lab_of(self.args.foretoken))
               if mode == "rest" else self.foretoken("replay", *words))
        result = json.loads(out.splitlines()[-1])
        found = result["sets"][0]
        found.pop("file")
        if not distribution:
            for counts in (found, *found["categories"].values()):
                counts.pop("rounds_by_length")
        return dict(found, mode=result["mode"], max_tree_nodes=nodes,
                    prompt_us_per_token=result["prompt_us_per_token"])

    def add(self, key, work):
        if key not in self.runs:
            self.steps.append((key, work))

    def add_replay(self, key, mode, nodes=64, name="specbench", flags=()):
        # The rows of tables, whose keys have no slash, are also in Figure 4.
        self.add(key, lambda: self.replay(
            self.data / "recorded" / SETS[name], mode, nodes,
            *[flag() if callable(flag) else flag for flag in flags],
            distribution="/" not in key))

    def prior(self):
        out = self.folder / "chat.prior"
        if not out.exists():
            self.foretoken(
                "prior", "build", "--corpus", *self.chat(), "--exclude-ids",
                *[self.data / "recorded" / name for name in SETS.values()],
                "--tokenizer", self.data / "tokenizers/llama2/tokenizer.model",
                "--max-bytes", PRIOR_BYTES, "--out", out)
        return out

    def chat(self):
        return sorted((self.data / "corpora").glob("chat_*.jsonl.gz"))

    def noisy(self, words=0, prompts=0):
        """Spec-Bench with noise in the context and the recorded answers kept:
        `words` percent of each prompt's words are replaced by words of other
        prompts; `prompts` other prompts stand in front of it."""
        out = self.folder / f"noise-{words}-{prompts}.jsonl"
        if out.exists():
            return out
        with gzip.open(self.data / "recorded" / SPECBENCH, "rt") as lines:
            rows = [json.loads(line) for line in lines]
        texts = [turn["prompt_text_full"] for row in rows
                 for turn in row["turns"]]
        vocabulary = " ".join(texts).split(" ")
        rng = random.Random(f"{words} {prompts}")
        for row in rows:
            for turn in row["turns"]:
                own = turn["prompt_text_full"]
                others = [text for text in rng.sample(texts, prompts + 1)
                          if text != own][:prompts]
                kept = [rng.choice(vocabulary) if rng.random() * 100 < words
                        else word for word in own.split(" ")]
                turn["prompt_text_full"] = "\n".join([*others, " ".join(kept)])
        # Two steps may make the same file at once.
        with tempfile.NamedTemporaryFile("w", dir=self.folder, delete=False,
                                         encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row) + "\n")
        os.replace(file.name, out)
        return out

    def reference_runs(self):
        """Accept lengths and speed of recorded runs with models, by task."""
        sums = collections.defaultdict(collections.Counter)
        lengths = collections.defaultdict(collections.Counter)
        speeds = {}
        path = self.data / "reference_runs/specbench_speculative_runs.jsonl.gz"
        tasks = {"translation", "summarization", "qa", "math_reasoning", "rag"}
        with gzip.open(path, "rt") as lines:
            for row in map(json.loads, lines):
                task = (row["category"] if row["category"] in tasks
                        else "mt_bench")
                for name in (task, "ALL"):
                    of = sums[row["method"], name]
                    of["tokens"] += sum(row["new_tokens"])
                    of["rounds"] += sum(row["decoding_steps"])
                    of["ms"] += 1000 * sum(row["wall_time_s"])
                lengths[row["method"]].update(row.get("accept_lengths") or [])
        for (method, name), of in sums.items():
            speeds.setdefault(method, {})[name] = {
                "accept_length": of["tokens"] / of["rounds"],
                "tokens_per_second": 1000 * of["tokens"] / of["ms"]}
        return {"methods": speeds, "rounds_by_length": {
            method: [counts[i] for i in range(1, max(counts) + 1)]
            for method, counts in lengths.items() if counts}}

    def plan(self):
        self.add("reference_runs", self.reference_runs)
        self.add_replay("prompt lookup", "prompt_lookup")
        self.add_replay("n-gram trie, as published", PUBLISHED, 32)
        self.add_replay("n-gram trie, learning", LEARNING)
        self.add_replay("auto, request only", "auto")
        for size in papers_ngram_trie.NUM_DRAFT:
            self.add_replay(f"num_draft/{size}",
                            f"{PUBLISHED},num_draft={size}", size)
        for kind, levels in papers_ngram_trie.NOISE.items():
            for level in levels:
                for name, mode, nodes in (("published", PUBLISHED, 32),
                                          ("learning", LEARNING, 64)):
                    self.add(f"noise/{kind}/{level}/{name}",
                             lambda k=kind, l=level, m=mode, s=nodes:
                             self.replay(self.noisy(**{k: l}), m, s))
        for name in SETS:
            self.add_replay(f"trie time/{name}", PUBLISHED, 32, name)
        for n in papers_ngram_trie.GRID_N:
            for lp in papers_ngram_trie.GRID_LP:
                self.add_replay(f"grid/{n}/{lp}", f"{PUBLISHED},n={n},lp={lp}",
                                32)
        # The two that read the chat corpora take the longest.
        self.add_replay("auto, with a prior", "auto",
                        flags=("--prior", self.prior))
        self.add_replay("REST", "rest", flags=(
            "--rest-corpus", *self.chat(), "--exclude-ids",
            self.data / "recorded" / SPECBENCH))

    def run(self):
        self.plan()
        with (tempfile.TemporaryDirectory(prefix="papers-") as folder,
              Progress("papers", len(self.steps)) as bar,
              concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool):
            self.folder = pathlib.Path(folder)
            working = {pool.submit(work): key for key, work in self.steps}
            for done in concurrent.futures.as_completed(working):
                key = working[done]
                self.runs[key] = dict(done.result(),
                                      made=made_by(self.args.foretoken))
                write_json(RUNS, self.runs)
                bar.end(key)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n",
                    encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--foretoken", default="build/release/bin/foretoken")
    parser.add_argument("--data", help="measure what is not kept yet")
    parser.add_argument("--again", action="store_true",
                        help="measure anew what is kept")
    parser.add_argument("--all", action="store_true",
                        help="measure with the other scripts, too: all tables "
                        "from scratch")
    parser.add_argument("--python-corpus", nargs="*",
                        help="folders of Python sources, for CREST on code")
    parser.add_argument("--work", default=".cache/speedup",
                        help="folder of speedup_report.py")
    parser.add_argument("--jobs", type=int, default=2,
                        help="replays at a time")
    parser.add_argument("--check", action="store_true",
                        help="compare the committed files, write nothing")
    args = parser.parse_args()
    if args.check:
        faults = papers_check.faults(papers_check.read(RESULTS))
        print("\n".join(faults) or
              "papers.md and the results' section are what the JSON gives")
        return 1 if faults else 0
    if args.data:
        runs = {} if args.again or not RUNS.exists() else json.loads(
            RUNS.read_text(encoding="utf-8"))
        Measure(args, runs).run()
        if args.all:
            papers_all.run(args)
    elif args.again or args.all:
        parser.error("--again and --all need --data")
    for name, text in papers_tables.outputs(papers_tables.read(RESULTS)):
        (RESULTS / name).write_text(text, encoding="utf-8")
    section = json.loads((RESULTS / "papers.json").read_text(
        encoding="utf-8"))["readme"]
    readme = papers_check.RESULTS.read_text(encoding="utf-8")
    place = papers_readme.place(readme, section)
    if not place:
        print(f"docs/results.md has no section \"{section['title']}\"",
              file=sys.stderr)
        return 1
    papers_check.RESULTS.write_text(
        readme[:place[0]] + papers_readme.drawn(section) + readme[place[1]:],
        encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
