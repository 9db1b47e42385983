#!/usr/bin/env python3
"""Measures every drafter without a model by `foretoken replay` and writes the
report: drafters.md and its SVG plots.

    tests/lab/drafters_report.py --foretoken build/release/bin/foretoken \
        --bench build/release/bin/bench_drafting --data DATA

DATA holds `recorded/`, `corpora/` and `tokenizers/llama2/tokenizer.model`. The
report holds numbers only. Accept lengths are exact and repeat to the digit;
times are the median of --repeats replays. Needs only the standard library.
"""
import argparse
import json
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile

from svg_plot import Plot

SETS = {
    "specbench": "specbench_vicuna-7b-v1.3.jsonl.gz",
    "mtbench": "mtbench_vicuna-7b-v1.5.jsonl.gz",
    "shopping": "shopping_vicuna-7b-v1.3.jsonl.gz",
    "classeval": "classeval_codellama-13b-instruct.jsonl.gz",
    "financebench": "financebench_gpt-4-turbo-oracle.jsonl.gz",
    "code": "code_wizardcoder-33b-v1.1.jsonl.gz",
    "gsm8k": "gsm8k_gpt3-175b-finetuned.jsonl.gz",
}
TASKS = ["mt_bench", "translation", "summarization", "qa", "math_reasoning",
         "rag"]
BUDGETS = [8, 16, 32, 64, 128]
PRIOR_BYTES = 10_000_000


class Drafter:
    """A row of the tables: a name and the flags of replay that make it."""

    def __init__(self, name, mode, *flags, nodes=64):
        self.name, self.mode, self.flags, self.nodes = name, mode, flags, nodes


MODEL_FREE = [
    Drafter("plain decoding", "off"),
    Drafter("prompt lookup", "prompt_lookup"),
    Drafter("prompt lookup, latest match", "prompt_lookup:match=latest"),
    Drafter("n-gram trie, as published, 32", "ngram_trie", nodes=32),
    Drafter("n-gram trie, learning, 64",
            "ngram_trie:learn=1,num_draft=64"),
    Drafter("phrase pool, cold", "phrase_pool"),
    Drafter("phrase pool, online", "phrase_pool", "--state", "online"),
]
# PRIOR stands for the prior's file.
AUTO = [
    Drafter("auto, request only", "auto"),
    Drafter("auto, request + history online", "auto", "--state", "online"),
    Drafter("auto, request + prior", "auto", "--prior", "PRIOR"),
    Drafter("auto, all three", "auto", "--state", "online", "--prior", "PRIOR"),
]


class Measure:
    def __init__(self, options, prior):
        self.options, self.prior = options, prior
        self.recorded = options.data / "recorded"
        self.tokenizer = options.data / "tokenizers/llama2/tokenizer.model"
        self.replays = 0

    def replay(self, mode, sets, *flags, nodes=64):
        """The JSON of one replay of `sets` (names)."""
        flags = [str(self.prior) if f == "PRIOR" else f for f in flags]
        command = [str(self.options.foretoken), "replay", "--recorded",
                   *[str(self.recorded / SETS[name]) for name in sets],
                   "--tokenizer", str(self.tokenizer), "--mode", mode,
                   "--max-tree-nodes", str(nodes), *flags, "--json"]
        self.replays += 1
        print(f"{self.replays:4d} {mode} {nodes} {' '.join(sets)}",
              file=sys.stderr)
        done = subprocess.run(command, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            sys.exit(f"{shlex.join(command)}\n{done.stderr}")
        return json.loads(done.stdout.splitlines()[-1])

    def history(self, name):
        return ["--history", str(self.recorded / SETS[name])]


def table(head, rows):
    lines = ["| " + " | ".join(str(cell) for cell in head) + " |",
             "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |"
              for row in rows]
    return "\n".join(lines)


def median_of(runs, *keys):
    def value(run):
        for key in keys:
            run = run[key]
        return run
    return statistics.median(value(run) for run in runs)


def main_table(measure, drafters):
    rows = []
    for drafter in drafters:
        runs = [measure.replay(drafter.mode, ["specbench"], *drafter.flags,
                               nodes=drafter.nodes)
                for _ in range(measure.options.repeats)]
        result = runs[0]["sets"][0]
        rows.append([
            drafter.name,
            *[f"{result['categories'][task]['accept_length']:.2f}"
              for task in TASKS],
            f"{result['accept_length']:.3f}",
            f"{result['accept_length_without_loops']:.3f}",
            f"{result['mean_tree_nodes']:.1f}",
            f"{100 * result['zero_accept_share']:.0f} %",
            f"{median_of(runs, 'draft_us', 'p50'):.2f} "
            f"({median_of(runs, 'draft_us', 'p99'):.2f})",
            f"{median_of(runs, 'draft_wall_us', 'p50'):.2f} "
            f"({median_of(runs, 'draft_wall_us', 'p99'):.2f})",
            f"{median_of(runs, 'insert_us_per_token'):.2f}",
            f"{median_of(runs, 'prompt_us_per_token'):.2f}",
            f"{result_bytes(runs[0], 'request')}",
            f"{result_bytes(runs[0], 'history')}",
        ])
    return table(["drafter", "mt_b", "trans", "summ", "qa", "math", "rag",
                  "ALL", "w/o", "nodes", "0-acc", "us/draft p50 (p99), CPU",
                  "the same, wall", "insert us", "prompt us", "request B",
                  "history B"], rows)


def result_bytes(run, which):
    value = run[f"{which}_bytes_per_token"]
    return f"{value:.0f}" if value else "-"


def other_sets_table(measure, drafters):
    others = [name for name in SETS if name != "specbench"]
    rows = []
    for drafter in drafters:
        run = measure.replay(drafter.mode, others, *drafter.flags,
                             nodes=drafter.nodes)
        rows.append([drafter.name,
                     *[f"{s['accept_length']:.3f}" for s in run["sets"]]])
    return table(["drafter", *others], rows)


def totals_table(measure):
    run = measure.replay("off", list(SETS))
    return table(["set", "turns", "prompt tokens", "output tokens", "counted"],
                 [[SETS[name].split(".jsonl")[0], s["turns"],
                   s["prompt_tokens"], s["output_tokens"], s["tokens"]]
                  for name, s in zip(SETS, run["sets"])])


def budgets(measure, drafters, out):
    plot = Plot("Accept length against node budget (specbench)",
                "draft nodes a round at most", "accept length", BUDGETS)
    rows = []
    for drafter in drafters:
        values = []
        for nodes in BUDGETS:
            # num_draft is the trie's own bound on a draft.
            mode = drafter.mode.replace("num_draft=64", f"num_draft={nodes}")
            run = measure.replay(mode, ["specbench"], *drafter.flags,
                                 nodes=nodes)
            values.append(run["sets"][0]["accept_length"])
        rows.append([drafter.name, *[f"{v:.3f}" for v in values]])
        plot.add(drafter.name, zip(BUDGETS, values))
    plot.write(out / "drafters_budget.svg")
    return table(["drafter", *BUDGETS], rows)


def trie_grid(measure, out):
    """N-Gram-Trie's table 2, in accept length."""
    ns, lps = range(8, 17), range(2, 6)
    tables = []
    grid = {}
    for n in ns:
        for lp in lps:
            run = measure.replay(f"ngram_trie:n={n},lp={lp}", ["specbench"],
                                 nodes=32)
            grid[n, lp] = run["sets"][0]
    for task in ("rag", "summarization", None):
        def length(n, lp):
            result = grid[n, lp]
            chosen = result["categories"][task] if task else result
            return chosen["accept_length"]
        tables.append(f"{task or 'ALL'}:\n\n" + table(
            ["L_p \\ n", *ns],
            [[lp, *[f"{length(n, lp):.3f}" for n in ns]] for lp in lps]))
        if task:
            plot = Plot(f"N-gram trie as published: n and L_p ({task})", "n",
                        "accept length", ns)
            for lp in lps:
                plot.add(f"L_p = {lp}", [(n, length(n, lp)) for n in ns])
            plot.write(out / f"drafters_ngram_trie_n_{task}.svg")
    return "\n\n".join(tables)


def trie_num_draft(measure, out):
    """N-Gram-Trie's table 3, in accept length."""
    sizes = [8, 16, 32, 64, 128, 256]
    plot = Plot("N-gram trie: nodes in a draft (num_draft)", "num_draft",
                "accept length", sizes)
    rows = []
    for learn, name in ((0, "as published"), (1, "learning")):
        runs = [measure.replay(f"ngram_trie:learn={learn},num_draft={size}",
                               ["specbench"], nodes=size) for size in sizes]
        for task in ("summarization", "rag", None):
            values = [(r["sets"][0]["categories"][task] if task
                       else r["sets"][0])["accept_length"] for r in runs]
            rows.append([f"{name}, {task or 'ALL'}",
                         *[f"{v:.3f}" for v in values]])
            plot.add(f"{name}, {task or 'ALL'}", zip(sizes, values))
        rows.append([f"{name}, nodes drafted", *[
            f"{r['sets'][0]['mean_tree_nodes']:.1f}" for r in runs]])
    plot.write(out / "drafters_ngram_trie_num_draft.svg")
    return table(["trie", *sizes], rows)


def trie_time(measure):
    """N-Gram-Trie's table 6: building the trie of a prompt."""
    rows = []
    for name in SETS:
        runs = [measure.replay("ngram_trie", [name], nodes=32)
                for _ in range(measure.options.repeats)]
        result = runs[0]["sets"][0]
        tokens = result["prompt_tokens"] / result["turns"]
        each = median_of(runs, "prompt_us_per_token")
        rows.append([name, f"{tokens:.0f}", f"{each:.3f}",
                     f"{each * tokens / 1000:.3f}"])
    return table(["set", "mean prompt tokens", "us/token", "ms/prompt"], rows)


def repeats_table(measure):
    """What comes again: the history holds the answers before the run."""
    rows = []
    for held, name in (("the same answers", "mtbench"),
                       ("a sibling model's answers to these and other "
                        "questions", "specbench")):
        for drafter in (Drafter("phrase pool", "phrase_pool"),
                        Drafter("auto, no prior", "auto"),
                        Drafter("auto, with prior", "auto", "--prior",
                                "PRIOR")):
            if drafter.mode == "auto" and not measure.prior:
                continue
            run = measure.replay(drafter.mode, ["mtbench"], *drafter.flags,
                                 "--state", "online", *measure.history(name))
            rows.append([held, drafter.name,
                         f"{run['sets'][0]['accept_length']:.2f}"])
    return table(["history holds", "drafter", "accept length, mtbench"], rows)


def benchmarks(path):
    done = subprocess.run([str(path), "--benchmark_format=json",
                           "--benchmark_min_time=0.2"],
                          capture_output=True, text=True, check=True)
    rows = []
    for bench in json.loads(done.stdout)["benchmarks"]:
        rate = bench.get("items_per_second")
        each = f"{1e9 / rate:.0f}" if rate else ""
        rows.append([bench["name"].removeprefix("BM_"),
                     f"{bench['cpu_time']:.0f}", each])
    return table(["benchmark/arguments", "ns/call, CPU", "ns/token"], rows)


def cpu_name():
    try:
        for line in open("/proc/cpuinfo", encoding="utf-8"):
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def commit():
    """HEAD, and whether what is measured differs from it. Taken before the
    first replay; that the binary was built from it is the caller's care."""
    def git(*args):
        root = pathlib.Path(__file__).resolve().parents[2]
        return subprocess.run(["git", *args], cwd=root, capture_output=True,
                              text=True, check=False).stdout.strip()
    changed = git("status", "--porcelain", "common", "tools/cli")
    head = git("rev-parse", "--short", "HEAD") or "unknown"
    return head + (" with local changes" if changed else "")


def build_prior(options, folder):
    corpora = sorted((options.data / "corpora").glob("chat_*.jsonl.gz"))
    recorded = [options.data / "recorded" / name for name in SETS.values()]
    out = pathlib.Path(folder) / "chat.prior"
    subprocess.run([options.foretoken, "prior", "build", "--corpus", *corpora,
                    "--exclude-ids", *recorded, "--tokenizer",
                    options.data / "tokenizers/llama2/tokenizer.model",
                    "--max-bytes", str(PRIOR_BYTES), "--out", out], check=True)
    return out


def write_report(options, measure):
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    built_from = commit()
    drafters = MODEL_FREE + (AUTO if measure.prior else [])
    scaled = [d for d in drafters if d.nodes == 64 and d.mode != "off"]
    prior_size = (f"{measure.prior.stat().st_size / 1e6:.1f} MB"
                  if measure.prior else "none")
    totals = totals_table(measure)
    main = main_table(measure, drafters)
    others = other_sets_table(measure, drafters)
    budget = budgets(measure, scaled, out)
    grid = trie_grid(measure, out)
    num_draft = trie_num_draft(measure, out)
    times = trie_time(measure)
    repeats = repeats_table(measure)
    bench = benchmarks(options.bench) if options.bench else "(not run)"
    text = f"""# Drafting without a model, measured by replay

Written by `tests/lab/drafters_report.py`; run it again to renew:

```
tests/lab/drafters_report.py --foretoken build/release/bin/foretoken \\
    --bench build/release/bin/bench_drafting --data DATA
```

One row is one `foretoken replay --recorded FILE --tokenizer
DATA/tokenizers/llama2/tokenizer.model --mode MODE --json`, with the mode and flags
that the names below stand for in the script. Commit {built_from}, {cpu_name()},
{platform.system()} {platform.machine()}, one thread. A replay needs no model: with
greedy decoding the recording tells what a verifier would have accepted. Accept
length is tokens committed a round, bonus token included; plain decoding is 1.00. At
most 64 nodes a round unless said. *cold*: nothing is kept from turn to turn;
*online*: kept within a set. Times are CPU times of the replaying thread, medians
of {options.repeats} replays, wall times beside them. Chat prior for `auto`: {prior_size}.

## The sets

{totals}

## Main set: Vicuna-7B-v1.3 on Spec-Bench

w/o: without the turns that ran into their length limit (loops). 0-acc: rounds
that accept no draft token. insert: us per committed token; prompt: us per prompt
token. Bytes are per token of a request (prompt and output), or of the history; a
phrase pool counts a phrase as one token.

{main}

## The other sets, ALL

{others}

## Accept length against the node budget, main set

{budget}

![accept length against node budget](drafters_budget.svg)

## Repeats

{repeats}

## N-Gram-Trie's tables and figures, as far as replay gives them

Accept lengths on Spec-Bench's tasks; speeds need a model. The plots show the sweeps of
tables 2 and 3; figure 4, table 4 and the paper's own numbers: [papers.md](papers.md).

### Table 2: n and L_p, at most 32 nodes, prompt only

{grid}

![n and L_p, rag](drafters_ngram_trie_n_rag.svg)
![n and L_p, summarization](drafters_ngram_trie_n_summarization.svg)

### Table 3: nodes in a draft

{num_draft}

![num_draft](drafters_ngram_trie_num_draft.svg)

### Table 6: time to build the trie of a prompt

{times}

## Benchmarks

Synthetic text (1/rank frequencies, two tokens in five copied), by context length.

{bench}
"""
    (out / "drafters.md").write_text(text, encoding="utf-8")


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--foretoken", required=True, type=pathlib.Path)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--bench", type=pathlib.Path,
                        help="bench_drafting; left out, its table is too")
    parser.add_argument("--prior", type=pathlib.Path,
                        help="a chat prior; built from DATA/corpora if missing")
    parser.add_argument("--no-auto", action="store_true",
                        help="leave out `auto`, and build no prior")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=here / "results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prior = None
        if not options.no_auto:
            prior = options.prior or build_prior(options, folder)
        write_report(options, Measure(options, prior))


if __name__ == "__main__":
    main()
