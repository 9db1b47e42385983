"""What papers.md consists of, built from committed JSON alone.

papers.json holds the tables; papers.md and the section on the papers in docs/results.md are
drawn from it and add nothing.
"""
import json
import pathlib

from papers_crest import crest
from papers_left import left
from papers_ngram_trie import ngram_trie
from papers_ouroboros import ouroboros
from papers_readme import readme
from papers_speed import at_paper_sizes
from report_table import UNCHECKED, markdown, report_json

SOURCES = {"published": "papers_published.json", "runs": "papers_runs.json",
           "crest": "crest_runs.json", "lookups": "crest_lookups.json",
           "ouroboros": "ouroboros.md",
           "agreement": "ouroboros_agreement.json",
           "pass_times": "pass_times.json", "speedup": "speedup.json",
           "draft_kv": "draft_kv.json"}


def read(folder):
    """What the tables are made of."""
    found = {}
    for name, file in SOURCES.items():
        path = pathlib.Path(folder) / file
        if not path.exists():
            found[name] = {} if file.endswith(".json") else ""
            continue
        text = path.read_text(encoding="utf-8")
        found[name] = json.loads(text) if file.endswith(".json") else text
    return found


def outputs(sources):
    """(file name, text) of everything that is written."""
    report, plots = build(sources)
    files = [("papers.json", report_json(report)),
             ("papers.md", markdown(report))]
    return files + [(name, plot.svg()) for name, plot in plots.items()]


def build(sources):
    plots = {}
    papers = [ouroboros(sources), ngram_trie(sources, plots),
              crest(sources), left(sources)]
    return {
        "title": "The papers' tables and figures beside ours",
        "text": [
            "Written by `tests/lab/papers_report.py` from "
            "`papers_runs.json`, `crest_runs.json`, `crest_lookups.json`, "
            "`ouroboros.md`, `ouroboros_agreement.json`, `pass_times.json`, "
            "`speedup.json` and, for the papers' figures, "
            "`papers_published.json`; `papers.json` "
            "holds these tables. To measure what is missing there, and to check "
            "that this page, and the section of docs/results.md, are what the JSON gives:",
            "```\ntests/lab/papers_report.py --foretoken "
            "build/release/bin/foretoken --data DATA\n"
            "tests/lab/papers_report.py --check\n```",
            "Accept lengths are tokens per round, bonus token included, exact by "
            "replay of recorded greedy outputs (`foretoken replay`), and "
            "repeat to the digit on any machine. Main set: Vicuna-7B-v1.3 on "
            "Spec-Bench, 336 of its 480 questions. *not available*: the paper's "
            "number was not, none is guessed. *not measured*: ours is missing, "
            "for the reason given. A paper's tables begin with where its "
            f"numbers stand; {UNCHECKED} marks those that were not compared "
            "with a public copy. A ratio outside 0.90 to 1.10 means not "
            "reproduced. Wall-clock speed is that of a shape of 660 M "
            "parameters with random weights. " +
            at_paper_sizes(sources["speedup"]) +
            " What is *projected* is named so.",
            made(sources)],
        "papers": papers, "readme": readme(sources)}, plots


def made(sources):
    """Commits, machines and load of the kept runs, in one line each."""
    lines = []
    for name, runs in (("papers_runs.json", sources["runs"]),
                       ("crest_runs.json", sources["crest"]),
                       ("crest_lookups.json", sources["lookups"]),
                       ("ouroboros_agreement.json", sources["agreement"]),
                       ("pass_times.json", sources["pass_times"]),
                       ("speedup.json", sources["speedup"])):
        by = {}
        for run in runs.values():
            of = run.get("made")
            if of:
                by.setdefault((of["commit"], of["machine"]), []).append(
                    of["load"])
        for (commit, machine), loads in sorted(by.items()):
            lines.append(f"{name}: {len(loads)} runs at {commit}, {machine}, "
                         f"load {min(loads):g} to {max(loads):g}")
    old = sum("made" not in run for run in sources["crest"].values())
    if old:
        lines.append(f"crest_runs.json: {old} runs at or before bd20b28, "
                     "machine not recorded")
    return "Measured: " + "; ".join(lines) + "."
