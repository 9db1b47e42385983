#!/usr/bin/env python3
"""Measures CREST and REST by replay and writes the report: numbers and plots.

  tests/lab/crest_report.py --foretoken build/release/bin/foretoken \
      --data DIR [--python-corpus DIR...] [--half chat|code] [--render-only]

DIR holds recorded/, corpora/ and tokenizers/ of the test data. Every measured
point is kept in tests/lab/results/crest_runs.json with the commit and the
machine that made it, so that a run that was stopped goes on where it was, and
the report can be drawn again without measuring. Standard library only. No text,
store or prior is written there.
"""
import argparse
import gzip
import html
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import private_postgres
from progress import Progress
from provenance import lab_of, made_by

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results"
RUNS = RESULTS / "crest_runs.json"
TOPS = [250, 1000, 4000, 16000, 64000, 256000]
SHARES = [100, 30, 10, 3, 1, 60]
# Every n-gram that occurs at least twice.
ALL = "all"
# Longest match that REST begins with; as published, and without a name of its
# own below, 16.
START_LENGTHS = [2, 3, 4, 5, 6, 8, 12]
# Shares of the text, in percent, that SHARE_TOP n-grams a length come from.
TEXT_SHARES = [10, 30]
SHARE_TOP = 16000
# Datastores also published in PostgreSQL, for the size of their relations.
RELATIONS = [("max", 4, 1000), ("max", 4, 16000), ("max", 4, 64000)]


class Bench:
    def __init__(self, args):
        self.args = args
        self.runs = json.loads(RUNS.read_text()) if RUNS.exists() else {}
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="crest-report-"))
        data = pathlib.Path(args.data) if args.data else None
        self.halves = {}
        if data:
            llama = data / "tokenizers/llama2/tokenizer.model"
            recorded = data / "recorded"
            self.halves["chat"] = dict(
                corpus=sorted((data / "corpora").glob("chat_*.jsonl.gz")),
                sets=[recorded / "specbench_vicuna-7b-v1.3.jsonl.gz",
                      recorded / "mtbench_vicuna-7b-v1.5.jsonl.gz"],
                tokenizer=llama, json=True)
            if args.python_corpus:
                self.halves["code"] = dict(
                    corpus=[pathlib.Path(p) for p in args.python_corpus],
                    sets=[recorded / "code_wizardcoder-33b-v1.1.jsonl.gz"],
                    tokenizer=llama, json=False)

    def foretoken(self, *words, binary=None):
        command = ["nice", "-n", "10", binary or self.args.foretoken,
                   *[str(w) for w in words]]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(" ".join(command) + "\n" + done.stderr[-2000:])
        return json.loads(
            [l for l in done.stdout.splitlines() if l.startswith("{")][-1])

    def replay(self, half, *words):
        h = self.halves[half]
        return self.summary(self.foretoken(
            "replay", "--recorded", *h["sets"], "--tokenizer", h["tokenizer"],
            "--json", *words))

    def replay_rest(self, half, *words):
        h = self.halves[half]
        return self.summary(self.foretoken(
            "replay-rest", "--recorded", *h["sets"], "--tokenizer",
            h["tokenizer"], "--json", *words,
            binary=lab_of(self.args.foretoken)))

    @staticmethod
    def summary(result):
        return {
            "draft_us": result["draft_us"],
            "sets": {pathlib.Path(s["file"]).name.split("_")[0]: {
                "accept_length": s["accept_length"],
                "without_loops": s["accept_length_without_loops"],
                "nodes": s["mean_tree_nodes"]} for s in result["sets"]}}

    def keep(self, key, value):
        value["made"] = made_by(self.args.foretoken)
        self.runs[key] = value
        RUNS.write_text(json.dumps(self.runs, indent=1, sort_keys=True) + "\n")

    def build(self, half, n_flag, n, top, selection, *target, percent=100):
        h = self.halves[half]
        corpus = (h["corpus"] if percent == 100
                  else [self.sample_rows(half, percent)])
        sample = "first" if selection == "rest" else "uniform"
        words = ["crest", "build", "--corpus", *corpus, "--exclude-ids",
                 *h["sets"], "--tokenizer", h["tokenizer"], f"--{n_flag}-n", n,
                 "--top", 2**40 if top == ALL else top,
                 "--selection", selection, "--sample", sample,
                 "--skip-invalid", *target]
        if percent == 100 and not h["json"]:
            words += ["--suffix", ".py"]
        return self.foretoken(*words)

    def text_share(self, half, longest, percent):
        """As many n-grams of a length, counted in a share of the text."""
        key = f"{half}/text/{percent}"
        if key in self.runs:
            return
        out = self.tmp / "x.crest"
        meta = self.build(half, "max", longest, SHARE_TOP, "rest", "--out", out,
                          percent=percent)
        value = self.replay(half, "--mode", "crest", "--crest", out)
        value.update(bytes=out.stat().st_size, entries=meta["entries"],
                     nodes=meta["nodes"], mean_nodes=meta["mean_nodes"],
                     tokens=meta["corpus_tokens"])
        self.keep(key, value)

    def relation(self, half, n_flag, n, top):
        """Bytes that PostgreSQL takes for a datastore, beside its snapshot."""
        key = f"{half}/postgres/{n_flag}{n}/rest/{top}"
        if key in self.runs:
            return
        with private_postgres.Server() as server:
            os.environ["FORETOKEN_POSTGRES_URL"] = server.url
            meta = self.build(half, n_flag, n, top, "rest", "--name", "store",
                              "--work", self.tmp / "relation.work")
            total, heap, indexes = server.query(
                "SELECT sum(pg_total_relation_size(oid)), "
                "sum(pg_table_size(oid)), sum(pg_indexes_size(oid)) "
                "FROM pg_class WHERE relkind = 'r' AND relname LIKE "
                "'foretoken\\_crest\\_%' AND relname NOT LIKE '%versions'")
        self.keep(key, {"sets": {}, "entries": meta["entries"],
                        "snapshot_bytes": meta["bytes"],
                        "total_bytes": int(total), "table_bytes": int(heap),
                        "index_bytes": int(indexes)})

    def crest(self, half, n_flag, n, top, selection):
        key = f"{half}/crest/{n_flag}{n}/{selection}/{top}"
        if key in self.runs:
            return
        same = f"{half}/crest/only{n}/{selection}/{top}"
        if n == 1 and same in self.runs:
            self.runs[key] = self.runs[same]
            return
        out = self.tmp / "x.crest"
        meta = self.build(half, n_flag, n, top, selection, "--out", out)
        value = self.replay(half, "--mode", "crest", "--crest", out)
        value.update(
            bytes=out.stat().st_size, entries=meta["entries"],
            nodes=meta["nodes"], mean_nodes=meta["mean_nodes"],
            bytes_per_node=meta["bytes_per_node"], levels=meta["levels"],
            corpus_tokens=meta["corpus_tokens"],
            excluded=meta["excluded_documents"])
        self.keep(key, value)

    def sample_rows(self, half, percent):
        """A random share of the corpus' rows or files, as one JSONL file."""
        h = self.halves[half]
        rng = random.Random(percent)
        out = self.tmp / f"{half}-{percent}.jsonl"
        if out.exists():
            return out
        with open(out, "w") as f:
            for path in h["corpus"]:
                if h["json"]:
                    for line in gzip.open(path, "rt"):
                        if rng.random() * 100 < percent:
                            f.write(line)
                else:
                    for source in sorted(path.rglob("*.py")):
                        try:
                            text = source.read_text("utf-8")
                        except (UnicodeDecodeError, OSError):
                            continue
                        if text and rng.random() * 100 < percent:
                            f.write(json.dumps({"text": text}) + "\n")
        return out

    def rest(self, half, mode, percent):
        key = f"{half}/{mode}/{percent}"
        if key in self.runs:
            return
        h = self.halves[half]
        value = self.replay_rest(half, "--mode", mode, "--rest-corpus",
                                 self.sample_rows(half, percent),
                                 "--exclude-ids", *h["sets"])
        self.keep(key, value)

    def measure(self, half):
        longest = 4 if half == "chat" else 5
        steps = []
        for top in [16000, 1000, 64000, 4000, 250, 256000]:
            steps.append((self.crest, "max", longest, top, "rest"))
            steps.append((self.crest, "max", 3, top, "best"))
        for percent in SHARES:
            for mode in ("rest", "rest:min_n=1", "rest:min_n=1,exact=1"):
                steps.append((self.rest, mode, percent))
        if private_postgres.available():
            steps += [(self.relation, *r) for r in RELATIONS]
        else:
            print("no PostgreSQL here: sizes of relations not measured",
                  file=sys.stderr)
        for percent in TEXT_SHARES:
            steps.append((self.text_share, longest, percent))
        for top in [16000, 1000, 64000, ALL]:
            for n in range(1, longest + 1):
                steps.append((self.crest, "only", n, top, "rest"))
            for n in range(longest, 0, -1):
                steps.append((self.crest, "max", n, top, "rest"))
        for length in START_LENGTHS:
            steps.append((self.rest, f"rest:max_n={length}", 100))
        with Progress(f"crest, {half}", len(steps)) as bar:
            for step, *words in steps:
                name = " ".join(map(str, [step.__name__, *words]))
                bar.begin(name)
                step(half, *words)
                bar.end(name)


# --- drawing ---------------------------------------------------------------

COLOURS = ["#1b6ca8", "#d1495b", "#2e8b57", "#8e5ea2", "#e08e0b", "#555555"]


def svg_plot(path, title, x_label, y_label, series, log_x=True):
    """series: [(name, [(x, y)])]; a small scatter with lines."""
    width, height, left, right, top, bottom = 640, 400, 60, 190, 34, 46
    series = [(html.escape(name), values) for name, values in series]
    title = html.escape(title)
    points = [p for _, s in series for p in s]
    if not points:
        return False
    fx = (lambda v: math.log10(v)) if log_x else (lambda v: v)
    x0, x1 = min(fx(x) for x, _ in points), max(fx(x) for x, _ in points)
    y0, y1 = min(y for _, y in points), max(y for _, y in points)
    x1 = x1 if x1 > x0 else x0 + 1
    pad = (y1 - y0 or 1) * 0.06
    y0, y1 = y0 - pad, y1 + pad
    px = lambda x: left + (fx(x) - x0) / (x1 - x0) * (width - left - right)
    py = lambda y: height - bottom - (y - y0) / (y1 - y0) * (
        height - top - bottom)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
           f'height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="20" font-size="14">{title}</text>']
    ticks = ([10 ** k for k in range(math.floor(x0), math.ceil(x1) + 1)
              if x0 - 1e-9 <= k <= x1 + 1e-9] if log_x else
             [x0 + i * (x1 - x0) / 5 for i in range(6)])
    for x in ticks:
        out.append(f'<line x1="{px(x):.1f}" y1="{top}" x2="{px(x):.1f}" '
                   f'y2="{height - bottom}" stroke="#ddd"/>'
                   f'<text x="{px(x):.1f}" y="{height - bottom + 16}" '
                   f'text-anchor="middle">{x:g}</text>')
    for i in range(6):
        y = y0 + i * (y1 - y0) / 5
        out.append(f'<line x1="{left}" y1="{py(y):.1f}" '
                   f'x2="{width - right}" y2="{py(y):.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{py(y) + 4:.1f}" '
                   f'text-anchor="end">{y:.2f}</text>')
    for k, (name, values) in enumerate(series):
        colour = COLOURS[k % len(COLOURS)]
        values = sorted(values)
        line = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in values)
        out.append(f'<polyline points="{line}" fill="none" '
                   f'stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3" '
                f'fill="{colour}"/>' for x, y in values]
        y = top + 14 + 18 * k
        out.append(f'<rect x="{width - right + 12}" y="{y - 9}" width="10" '
                   f'height="10" fill="{colour}"/><text '
                   f'x="{width - right + 28}" y="{y}">{name}</text>')
    out.append(f'<text x="{(left + width - right) / 2}" y="{height - 10}" '
               f'text-anchor="middle">{x_label}</text><text x="14" '
               f'y="{height / 2}" transform="rotate(-90 14 {height / 2})" '
               f'text-anchor="middle">{y_label}</text></svg>')
    path.write_text("\n".join(out) + "\n")
    return True


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(
        lines + ["| " + " | ".join(str(c) for c in r) + " |" for r in rows])


def store_bytes(runs, half, percent):
    """6 bytes a token of REST's store: a share of the whole corpus."""
    whole = [r["corpus_tokens"] for k, r in runs.items()
             if k.startswith(half + "/crest/")]
    return whole[0] * 6 * percent / 100 if whole else None


def render_half(runs, half, sets):
    longest = 4 if half == "chat" else 5
    text = []
    for name in sets:
        series = {}
        rows = []
        for key, r in runs.items():
            parts = key.split("/")
            if parts[0] != half or name not in r["sets"]:
                continue
            accept = r["sets"][name]["accept_length"]
            if parts[1] == "crest":
                _, _, n, selection, top = parts
                label = {f"max{longest}/rest": f"CREST n<={longest}, REST cut",
                         "max3/best": "CREST n<=3, best 64"}.get(
                             f"{n}/{selection}")
                size = r["bytes"]
                detail = f"t = {top}"
            else:
                label = {"rest": "REST as published",
                         "rest:min_n=1": "REST + 1-gram fallback",
                         "rest:min_n=1,exact=1": "REST, exact counts, 4..1"
                         }.get(parts[1])
                size = store_bytes(runs, half, int(parts[2]))
                detail = f"{parts[2]} % of the store"
            if label and size:
                series.setdefault(label, []).append((size / 1e6, accept))
                rows.append((label, detail, size, accept,
                             r["sets"][name]["without_loops"],
                             r["sets"][name]["nodes"], r["draft_us"]))
        picture = f"crest_bytes_{name}.svg"
        if svg_plot(RESULTS / picture, f"Accept length against bytes, {name}",
                    "MB", "accept length", sorted(series.items())):
            text.append(f"### {name}: accept length against bytes\n\n"
                        f"![accept length against bytes]({picture})\n")
            rows.sort(key=lambda r: (r[0], r[2]))
            text.append(table(
                ["drafter", "size", "MB", "accept length", "without loops",
                 "nodes", "draft p50 (p99) us"],
                [(a, b, f"{c / 1e6:.2f}", f"{d:.3f}", f"{e:.3f}", f"{f:.1f}",
                  f"{g['p50']:.1f} ({g['p99']:.0f})")
                 for a, b, c, d, e, f, g in rows]) + "\n")
        single = {}
        for key, r in runs.items():
            parts = key.split("/")
            if (parts[0] == half and parts[1] == "crest" and
                    parts[3] == "rest" and name in r["sets"]):
                n = parts[2]
                label = (f"n = {n[4:]} alone" if n.startswith("only")
                         else f"n <= {n[3:]}")
                single.setdefault(label, []).append(
                    (r["entries"], r["sets"][name]["accept_length"]))
        for kind, title in (("alone", "single n"), ("<=", "all n <= m")):
            chosen = sorted((k, v) for k, v in single.items() if kind in k)
            slug = "single" if kind == "alone" else "upto"
            picture = f"crest_{slug}_{name}.svg"
            if chosen and svg_plot(
                    RESULTS / picture,
                    f"Accept length against n-grams, {title}, {name}",
                    "stored n-grams", "accept length", chosen):
                text.append(f"### {name}: {title} (REST cut)\n\n"
                            f"![{title}]({picture})\n")
                text.append(table(
                    ["", "stored n-grams: accept length"],
                    [(k, ", ".join(f"{x}: {y:.3f}" for x, y in sorted(v)))
                     for k, v in chosen]) + "\n")
    text += render_start_lengths(runs, half, sets)
    text += render_text_shares(runs, half, sets, longest)
    text += render_counts(runs, half, longest)
    text += render_relations(runs, half)
    return "\n".join(text)


def render_start_lengths(runs, half, sets):
    rows = []
    for length in [*START_LENGTHS, 16]:
        run = runs.get(f"{half}/rest/100" if length == 16 else
                       f"{half}/rest:max_n={length}/100")
        if run:
            rows.append([length, *[f"{run['sets'][name]['accept_length']:.3f}"
                                   for name in sets]])
    if len(rows) < 2:
        return []
    return ["### Figure 3: REST by the length that the match begins with\n",
            table(["longest match", *sets], rows) + "\n"]


def render_text_shares(runs, half, sets, longest):
    rows = []
    for percent in [*TEXT_SHARES, 100]:
        run = runs.get(f"{half}/text/{percent}" if percent != 100 else
                       f"{half}/crest/max{longest}/rest/{SHARE_TOP}")
        if run:
            rows.append([f"{percent} %",
                         f"{run.get('tokens', run.get('corpus_tokens')):,}",
                         f"{run['entries']:,}", f"{run['mean_nodes']:.1f}",
                         f"{run['bytes'] / 1e6:.2f}",
                         *[f"{run['sets'][name]['accept_length']:.3f}"
                           for name in sets]])
    if len(rows) < 2:
        return []
    return [f"### More text, the same number of n-grams (t = {SHARE_TOP})\n",
            table(["of the text", "tokens", "n-grams stored", "mean nodes",
                   "MB", *sets], rows) + "\n"]


def render_relations(runs, half):
    rows = []
    for flag, n, top in RELATIONS:
        run = runs.get(f"{half}/postgres/{flag}{n}/rest/{top}")
        if run:
            rows.append((f"n <= {n}", top, f"{run['entries']:,}",
                         *[f"{run[k] / 1e6:.2f}" for k in
                           ("snapshot_bytes", "total_bytes", "table_bytes",
                            "index_bytes")]))
    if not rows:
        return []
    return ["### Size in PostgreSQL (MB)\n",
            table(["n-grams", "t", "n-grams stored", "snapshot",
                   "pg_total_relation_size", "table", "index"], rows) + "\n"]


def render_counts(runs, half, longest):
    text = []
    best = next((r for k, r in runs.items()
                 if k.startswith(f"{half}/crest/max{longest}/")), None)
    if best:
        levels = best["levels"]
        picture = f"crest_cumulative_{half}.svg"
        svg_plot(RESULTS / picture,
                 f"Cumulative n-gram frequencies, {half} corpus",
                 "most frequent n-grams", "share of all occurrences",
                 [(f"n = {l['n']}", [tuple(p) for p in l["coverage"]])
                  for l in levels])
        text.append(f"### Cumulative n-gram frequencies, {half}\n\n"
                    f"![cumulative]({picture})\n")
        text.append("### Table 1: n-grams of the corpus\n")
        text.append(table(
            ["n", "distinct", "occurrences"],
            [(l["n"], f"{l['distinct']:,}", f"{l['occurrences']:,}")
             for l in levels] +
            [("all", f"{sum(l['distinct'] for l in levels):,}", "")]) + "\n")
    rows = []
    for key, r in sorted(runs.items()):
        parts = key.split("/")
        if parts[0] == half and parts[1] == "crest" and (
                parts[2] in ("max3", f"max{longest}") or
                parts[2].startswith("only")):
            rows.append((parts[2].replace("max", "n <= ").replace(
                "only", "n = "), parts[3], parts[4],
                         f"{r['mean_nodes']:.1f}", f"{r['entries']:,}",
                         f"{r['bytes'] / 1e6:.2f}",
                         f"{r['bytes_per_node']:.2f}"))
    if rows:
        rows.sort(key=lambda r: (r[0], r[1],
                                 math.inf if r[2] == ALL else int(r[2])))
        text.append("### Table 2: trees\n")
        text.append(table(["n-grams", "selection", "t", "mean nodes",
                           "n-grams stored", "MB", "bytes a node"], rows)
                    + "\n")
    return text


def render(runs):
    parts = [
        "# CREST and REST by replay\n",
        "Made by `tests/lab/crest_report.py` (see its head for the command);"
        " every number is in `crest_runs.json`. REST's bytes are 6 a token of"
        " its store (2 of text, 4 of suffix array), CREST's are those of the"
        " snapshot file. REST as published takes no match below two tokens;"
        " the row with a 1-gram fallback tells how much of CREST's gain is"
        " that. REST's samples are random rows or files of the store. Chat: the"
        " four chat corpora, rows with the id of a question left out. Code:"
        " the `.py` files of Debian 12's python3.11 standard library,"
        " networkx and twisted.\n"]
    for half, sets in (("chat", ["specbench", "mtbench"]), ("code", ["code"])):
        body = render_half(runs, half, sets)
        if body:
            parts.append(f"## {half.capitalize()} half\n\n{body}")
    (RESULTS / "crest.md").write_text("\n".join(parts))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--foretoken", default="build/release/bin/foretoken")
    parser.add_argument("--data")
    parser.add_argument("--python-corpus", nargs="*", default=[])
    parser.add_argument("--half", choices=["chat", "code"])
    parser.add_argument("--render-only", action="store_true")
    args = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    bench = Bench(args)
    if not args.render_only:
        for half in bench.halves:
            if args.half in (None, half):
                bench.measure(half)
                render(bench.runs)
    render(bench.runs)


if __name__ == "__main__":
    main()
