"""speedup.md: what it says of the turns that `foretoken-lab replay` measured.

A summary holds, for each category and for their mean, [ratio, low, high] of
plain decoding's seconds over the variant's, with 95 % of a bootstrap over
questions; the rest is sums. Seconds are those of whole outputs: where a window
of an output was decoded, its seconds are scaled to the output's length.
"""
import collections
import itertools
import json
import pathlib
import random

from report_table import make_table, rows_of

RESAMPLES = 2000
TASKS = {"mt_bench": "multi-turn", "translation": "translation",
         "summarization": "summarization", "qa": "question answering",
         "math_reasoning": "mathematics", "rag": "RAG"}
AUTO = ("auto", "auto, CREST", "auto, prior")
# Shares of the seconds after prefill; drafting includes indexing.
PARTS = ("indexing", "drafting", "verifying")
# Trained for its target, unlike the others.
DRAFT_MODEL = "vicuna-68m, recorded"


def summaries(*paths):
    """Summary by variant of files of turns, which have the same variants."""
    turns = []
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            header, *measured = [json.loads(line) for line in lines]
        names = [variant["name"] for variant in header["variants"]]
        if path != paths[0] and names != first:
            raise ValueError(f"{path}: variants {names}, want {first}")
        first = names
        turns += measured
    return {name: summary(turns, index) for index, name in enumerate(first)}


def whole(turn, index):
    """What a variant did in a turn, scaled to the whole output, and the seconds
    of plain decoding. The work on the prompt is done once."""
    own = turn["variants"][index]
    scale = turn["length"] / max(own["tokens"], 1)
    once = own["indexing"]
    return {"plain": turn["plain"] * turn["length"] / max(turn["tokens"], 1),
            "rounds": own["rounds"] * scale, "nodes": own["nodes"] * scale,
            "indexing": once,
            **{part: once + (own[part] - once) * scale
               for part in ("speculative", "drafting")},
            "verifying": own["verifying"] * scale}


def summary(turns, index):
    tasks = collections.defaultdict(lambda: collections.defaultdict(list))
    for turn in turns:
        of = whole(turn, index)
        tasks[turn["category"]][turn["id"]].append(
            (of["plain"], of["speculative"], turn["prefill"]))
    named = {task: list(questions.values())
             for task, questions in tasks.items()}
    out = {"tasks": {task: dict(ratios([questions]),
                                **sums([turn for turn in turns
                                        if turn["category"] == task], index))
                     for task, questions in sorted(named.items())}}
    out["mean"] = dict(ratios(list(named.values())), **sums(turns, index))
    return out


def sums(turns, index):
    own = [whole(turn, index) for turn in turns]
    length = sum(turn["length"] for turn in turns)
    rounds = sum(of["rounds"] for of in own)
    seconds = sum(of["speculative"] for of in own)
    return {"questions": len({turn["id"] for turn in turns}),
            "turns": len({turn["turn"] for turn in turns}),
            "tokens": sum(turn["tokens"] for turn in turns),
            "accept_length": length / rounds if rounds else 1.0,
            "rows": 1 + sum(of["nodes"] for of in own) / max(rounds, 1),
            **{part: sum(of[part] for of in own) / seconds if seconds else 0.0
               for part in PARTS},
            "tokens_per_second": length / seconds if seconds else 0.0}


def ratios(tasks):
    """Mean over tasks of the ratio of their sums; questions are drawn again
    within their task."""
    drawn = random.Random(1)
    found = {"decode": [], "with_prefill": []}
    for resample in range(RESAMPLES + 1):
        decode, whole = [], []
        for questions in tasks:
            chosen = questions if resample == 0 else drawn.choices(
                questions, k=len(questions))
            plain, own, prefill = (sum(column) for column in zip(
                *itertools.chain.from_iterable(chosen)))
            decode.append(plain / own if own else 1.0)
            whole.append((prefill + plain) / (prefill + own))
        found["decode"].append(sum(decode) / len(decode))
        found["with_prefill"].append(sum(whole) / len(whole))
    return {name: interval(values) for name, values in found.items()}


def interval(values):
    first, *others = values
    others.sort()
    return [first, others[int(0.025 * len(others))],
            others[int(0.975 * len(others)) - 1]]


def shown(ratio):
    value, low, high = ratio
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def drawn(folder):
    """speedup.md of the committed JSON."""
    folder = pathlib.Path(folder)
    runs = json.loads((folder / "speedup.json").read_text(encoding="utf-8"))
    published = json.loads((folder / "papers_published.json").read_text(
        encoding="utf-8"))["spec_bench"]
    out = ["# Speed-up by the clock",
           "Written by `tests/lab/speedup_report.py` from `speedup.json`. "
           "Passes are real, of a model with random weights; a recording of "
           "Vicuna-7B-v1.3's greedy output on Spec-Bench decides what is "
           "accepted, so that the tokens are the same in all modes. Ratios are "
           "plain decoding's seconds over the mode's on the same turns, "
           "interleaved turn by turn; in brackets 95 % of a bootstrap over "
           "questions. Where a window is named, so many tokens of each output "
           "were decoded, at a random place, after all before it was told to "
           "the drafters; its seconds stand for the whole output's, the work "
           "on the prompt counts once, and no prefill is timed. These are "
           "estimates; the accept length in windows stands beside the exact one "
           "of whole outputs (`foretoken replay`). *auto* has no such number, "
           "since its trees follow the clock. It starts every window as it "
           "starts an output, before it knows its own pace, so windows show it "
           "too slow rather than too fast. *auto* leaves "
           "out nodes that do not pay off (*auto, CREST* has the datastore as "
           "one more source, *auto, prior* a prior of the same text), of at most "
           "64; all others verify whole trees, cut at what costs little here. "
           f"*{DRAFT_MODEL}*: a draft model of 68 M parameters runs beside, "
           "and what is accepted of it is what others recorded.",
           "```\ntests/lab/speedup_report.py --foretoken "
           "build/release/bin/foretoken --data DATA --work FOLDER\n```"]
    for key, run in runs.items():
        out += setting(key, run)
    out += leaderboard(published, runs)
    return "\n\n".join(out) + "\n"


def setting(key, run):
    tasks = [task for task in TASKS
             if task in next(iter(run["variants"].values()))["tasks"]]
    some = next(iter(run["variants"].values()))["mean"]
    made = run["made"]
    limit = (f", outputs cut at {run['longest_output']} tokens"
             if run["longest_output"] else "")
    if run.get("window"):
        places = (f", at {run['windows']} places" if run["windows"] > 1 else "")
        limit += f", a window of {run['window']} tokens of each output{places}"
    part = (f"the first {run['turns_per_category']} turns of each category"
            if run["turns_per_category"] else "all recorded turns")
    passes = ", ".join(f"{rows:.0f}: {ms:.1f}" for rows, ms in run["pass_ms"])
    speed = [[name, *[shown(of["tasks"][task]["decode"]) for task in tasks],
              shown(of["mean"]["decode"])]
             for name, of in run["variants"].items()]
    rest = [[name, "" if run.get("window") else
             shown(of["mean"]["with_prefill"]),
             [of["mean"]["accept_length"], 2],
             [of["whole_accept_length"], 2] if of.get("whole_accept_length")
             else "", [of["mean"]["rows"], 1],
             *[[100 * of["mean"][part], 1] for part in PARTS],
             [of["mean"]["tokens_per_second"], 1]]
            for name, of in run["variants"].items()]
    return [
        f"## {key}",
        f"Shape `{run['shape']}`, weights {run['weights']}, {run['threads']} "
        f"threads, whole trees of at most {run['tree_nodes']} nodes, "
        f"`{run['backend'].split(';weights=')[0]}`; {part}{limit}: "
        f"{some['questions']} "
        f"questions, {some['turns']} turns, {some['tokens']:,} tokens beside "
        f"those of prefill. Commit {made['commit']}, {made['machine']}, load "
        f"{made['load']} at the start. A pass by rows, ms: {passes}.",
        "Speed-up after prefill:",
        rows_of(make_table(key, ["mode", *[TASKS[task] for task in tasks],
                                 "mean of categories"], speed)),
        "All turns together; shares of the time after prefill:",
        rows_of(make_table(key, ["mode", "mean speed-up with prefill",
                                 "accept length", "the same, whole outputs",
                                 "rows a pass",
                                 "indexing the prompt, %",
                                 "drafting in all, %", "verifying, %",
                                 "tokens/s"], rest)),
        " ".join(verdict(name, run["variants"], tasks) for name in AUTO
                 if name in run["variants"])]


def verdict(name, variants, tasks):
    """Which other modes are faster than `name` beyond doubt: their whole
    interval is above its ratio."""
    above = []
    for other, of in variants.items():
        if other in (name, *AUTO, DRAFT_MODEL) or other.startswith("auto"):
            continue
        above += [f"{other} on {TASKS[task]}" for task in tasks
                  if of["tasks"][task]["decode"][1] >
                  variants[name]["tasks"][task]["decode"][0]]
    return (f"Wholly above *{name}*: {'; '.join(above)}." if above else
            f"No other mode without training is wholly above *{name}* in any "
            "category.")


def leaderboard(published, runs):
    """Spec-Bench's own table, beside the first setting's that prefills."""
    key, run = next(((key, run) for key, run in runs.items()
                     if not run.get("window")), (None, None))
    if run is None:
        return []
    ours = {"prompt lookup": "prompt lookup", "REST": "REST",
            "vicuna-68m": DRAFT_MODEL}
    rows = []
    for device, group in ((published["device"], "speedup"),
                          (published["other_device"], "other_speedup")):
        for method, by_task in published[group].items():
            of = run["variants"].get(ours.get(method, ""))
            rows.append([f"{method}, {device}",
                         *[[by_task[task], 2] for task in TASKS],
                         [by_task["overall"], 2],
                         [of["mean"]["with_prefill"][0], 2] if of else ""])
    return [
        "## Beside Spec-Bench's leaderboard",
        f"{published['source']} at {published['version']}: "
        f"{published['model']}, with prefill, on GPUs, where a pass of many "
        f"rows costs hardly more than one of one. Ours: {key}, mean of "
        "categories with prefill.",
        rows_of(make_table("", ["method", *TASKS.values(), "overall", "ours"],
                           rows))]


def faults(folder):
    folder = pathlib.Path(folder)
    is_ = (folder / "speedup.md").read_text(encoding="utf-8")
    lines = itertools.zip_longest(is_.splitlines(),
                                  drawn(folder).splitlines(), fillvalue="")
    for number, (here, there) in enumerate(lines, 1):
        if here != there:
            return [f"speedup.md: line {number} is \"{here}\", the JSON gives "
                    f"\"{there}\"; run speedup_report.py"]
    return []
