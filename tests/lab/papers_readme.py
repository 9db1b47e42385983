"""The section on the papers of docs/results.md, a selection of the tables of papers.md."""
import re
import textwrap

from papers_agreement import projected_over_greedy
from papers_crest import HALVES, best_single, headline
from papers_ngram_trie import (DRAFT_RUNS, length, trie_milliseconds,
                               trie_paper)
from papers_ouroboros import over_plain, published_over_plain, warm_start
from papers_speed import at_paper_sizes
from report_table import UNCHECKED, make_table, mark, ratio, rows_of, span

TITLE = "Against the papers"
WIDTH = 85
COMMANDS = """```
tests/lab/papers_report.py --foretoken build/release/bin/foretoken --data DATA
tests/lab/crest_report.py --foretoken build/release/bin/foretoken --data DATA \\
  --python-corpus DIR   # Python sources, for the half on code
tests/lab/ouroboros_report.py --bench build/release/bin/bench_draft_worker
tests/lab/ouroboros_agreement.py --bench build/release/bin/bench_agreement \\
  --data DATA
tests/lab/speedup_report.py --data DATA --work FOLDER
tests/lab/papers_report.py --all --data DATA   # all of them; hours
```"""


def readme(sources):
    published = sources["published"]
    rows = [*trie_rows(published["ngram_trie"], sources["runs"],
                       sources["speedup"]),
            *crest_rows(published["crest"], sources["crest"]),
            *ouroboros_rows(published["ouroboros"], sources["ouroboros"]),
            *agreement_rows(published["ouroboros"], sources)]
    return {
        "title": TITLE,
        "before": [
            "Accept lengths are tokens per round. *replay* is the command "
            "above; the other commands, with DATA as above and with `corpora/` "
            "and `reference_runs/` in it:",
            COMMANDS,
            "A ratio outside 0.90 to 1.10 means that the paper's number is not "
            "reproduced; over a range it is taken to the nearest end. "
            f"{UNCHECKED}: not compared with a public copy of the paper. This "
            "section is written by `papers_report.py`, too."],
        "table": make_table(
            TITLE, ["paper", "its number", "ours", "ours / paper", "command"],
            rows),
        "after": [
            "The three papers' tables and figures, with sources, settings, "
            "probable reasons for the differences, and what is not measured or "
            "not built: [papers.md](../tests/lab/results/papers.md). "
            "[speedup.md](../tests/lab/results/speedup.md): every mode by the "
            "clock on Spec-Bench, with random weights on a CPU. " +
            at_paper_sizes(sources["speedup"])]}


def row(what, theirs, ours, over, command):
    return [what, theirs, ours,
            over if isinstance(over, str) else f"{over:.2f}",
            command if command == "replay" else f"`{command}`"]


def speed_rows(paper, runs):
    """Of all turns, where those were measured."""
    theirs, sign = paper["table_1"]["speedup"], mark(paper, "table_1")
    runs = {key: run for key, run in runs.items()
            if not run["turns_per_category"]} or runs
    windows = (", estimated from windows of each output"
               if all(run.get("window") for run in runs.values()) else "")
    rows = []
    for task in ("summarization", "rag"):
        ours = {key: run["variants"]["n-gram trie, as published"]["tasks"][task]
                ["decode"][0] for key, run in runs.items()}
        rows.append(row(
            f"N-Gram-Trie, Table 1: speed-up, {task}",
            f"{theirs[task]:.2f}{sign}, GPU", ", ".join(
                f"{ratio:.2f} ({key})" for key, ratio in ours.items()) +
            f", random weights on a CPU{windows}", "; ".join(
                f"{of / theirs[task]:.2f}" for of in ours.values()),
            "speedup_report.py"))
    return rows


def trie_rows(paper, runs, speedup):
    sign = mark(paper, "table_1")
    lengths = paper["table_1"]["accept_length"]
    trie = runs["n-gram trie, as published"]
    rows = []
    for key, what in (
            ("summarization", "N-Gram-Trie, Table 1: accept length on "
             "summarization"), ("rag", "the same on RAG")):
        ours = length(trie, key)
        rows.append(row(what, f"{lengths[key]:.2f}{sign}", f"{ours:.2f}",
                        ratio(lengths[key], ours), "replay"))
    theirs = paper["table_1"]["vicuna_68m_rag_accept_length"]
    drafts = [runs["reference_runs"]["methods"][name]["rag"]["accept_length"]
              for name in DRAFT_RUNS.values()]
    rows.append(row(
        "the same, vicuna-68m as draft model, RAG", f"{theirs:.2f}{sign}",
        " and ".join(f"{value:.2f}" for value in drafts) +
        ", two runs recorded by others", " and ".join(
            f"{ratio(theirs, value):.2f}" for value in drafts),
        "papers_report.py"))
    rows += speed_rows(paper, speedup)
    times = trie_milliseconds(runs).values()
    rows.append(row(
        "N-Gram-Trie, Table 6: trie of a prompt", f"{trie_paper(paper)}",
        f"{span(min(times), max(times), 3)} ms, on another machine", "",
        "papers_report.py"))
    return rows


def crest_rows(paper, runs):
    ours = headline(runs, "chat")
    figure, sign = paper[HALVES["chat"][2]], mark(paper, HALVES["chat"][2])
    rest, fallback = ours["rest"], ours["fallback"]
    def add(what, theirs, text, over):
        return row(what, theirs, text, over, "crest_report.py")
    rows = [
        add("CREST, Figure 6: REST's accept length, MT-Bench",
            f"{figure['REST']:.2f}{sign}",
            f"{rest['length']:.2f}, with a store of {ours['store'] / 1e6:.1f} "
            f"MB; the paper's is ShareGPT, {figure['store']}{sign}",
            ratio(figure["REST"], rest["length"])),
        add("the same, CREST's", f"{figure['CREST']:.2f}{sign}",
            f"{ours['crest']:.2f}", ratio(figure["CREST"], ours["crest"]))]
    for what, theirs, key, unit in (
            ("CREST: accept length over REST's in the same space",
             "longer_percent", "same_space", " %"),
            ("CREST: space for REST's accept length, times less", "less_space",
             "less_space", "")):
        rows.append(add(
            f"{what}, MT-Bench", span(*paper[theirs], 1, mark(paper, theirs)) +
            unit, f"{rest[key]:.1f}{unit}; {fallback[key]:.1f}{unit} if REST "
            "falls back to one token",
            f"{ratio(paper[theirs], rest[key]):.2f}; "
            f"{ratio(paper[theirs], fallback[key]):.2f}"))
    theirs, best = paper["figure_8_best_single_n"], best_single(runs)
    rows.append(add("CREST, Figure 8: best single n",
                    f"{theirs}{mark(paper, 'figure_8')}",
                    " or ".join(map(str, best)),
                    "; ".join(f"{ratio(theirs, n):.2f}" for n in best)))
    return rows


def ouroboros_rows(paper, text):
    table, warm = paper["table_4"], warm_start(text)
    # Cold first, tasks one after the other last.
    gains = {mode: lengths[-1] / lengths[0] for mode, lengths in warm.items()}
    theirs = published_over_plain(paper)
    ours = over_plain(text)
    return [
        row("Ouroboros, Table 4: warm start over cold, tasks one after the "
            "other", f"{table['warm, consecutive'] / table['cold']:.2f}"
            f"{mark(paper, 'table_4')}, speed",
            f"{gains['ouroboros:passes=1']:.2f}, accept length at one draft "
            f"pass per round; {gains['ouroboros']:.2f} as published", "",
            "ouroboros_report.py"),
        row("Ouroboros, Table 2: over plain decoding",
            span(*theirs, 2, mark(paper, "table_2")),
            f"{ours:.2f}, demo pair on a CPU", ratio(theirs, ours),
            "ouroboros_report.py")]


def agreement_rows(paper, sources):
    """The premise of the paper's Table 2: a draft of high agreement."""
    found = projected_over_greedy(sources)
    if not found:
        return []
    level, pair, speeds = found
    theirs, ours = published_over_plain(paper), [min(speeds), max(speeds)]
    return [row(
        f"the same with drafts of {level} agreement, four tasks",
        span(*theirs, 2, mark(paper, "table_2")),
        f"{span(*ours, 2)}, projected for {pair}, rows free",
        " and ".join(f"{ratio(theirs, value):.2f}" for value in ours),
        "ouroboros_agreement.py")]


def drawn(section):
    """The section's text, without its heading."""
    def wrapped(parts):
        return [part if part.startswith("```") else textwrap.fill(
            part, WIDTH, break_long_words=False, break_on_hyphens=False)
            for part in parts]
    return "\n" + "\n\n".join([*wrapped(section["before"]),
                               rows_of(section["table"]),
                               *wrapped(section["after"])]) + "\n\n"


def place(text, section):
    """Where the section stands in the page's text: (begin, end), or None."""
    found = re.search(rf"^### {re.escape(section['title'])}\n(.*?)(?=^#|\Z)",
                      text, re.MULTILINE | re.DOTALL)
    return found.span(1) if found else None
