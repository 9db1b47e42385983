"""N-Gram-Trie's speed and where its time goes, from speedup.json."""
from report_table import make_table, mark
from speedup_tables import TASKS, shown

TRIES = ("n-gram trie, as published", "n-gram trie, learning")
PLACES = {"rag": "RAG", "summarization": "summarization"}


def speed(paper, runs):
    """Tables for the paper's speed-ups and its Figure 5."""
    if not runs:
        return []
    return [speed_ups(paper, runs), shares(runs)]


def at_paper_sizes(runs):
    """What is measured with shapes of the papers' models."""
    large = [f"{key} ({run['variants'][TRIES[0]]['mean']['turns']} turns)"
             for key, run in runs.items() if key.startswith("llama")]
    return ("Of the papers' sizes, part of the turns is measured: "
            f"{', '.join(large)}." if large else
            "No speed-up at the papers' sizes is measured.")


def settings(runs):
    return "; ".join(
        f"{key}: {run['variants'][TRIES[0]]['mean']['questions']} questions, "
        f"commit {run['made']['commit']}, load {run['made']['load']:g}"
        for key, run in runs.items())


def speed_ups(paper, runs):
    theirs, sign = paper["table_1"]["speedup"], mark(paper, "table_1")
    rows = [["the paper, on a GPU, its own models", *[
        f"{theirs[task]:.2f}{sign}" if task in theirs else ""
        for task in TASKS], f"{theirs['mean']:.2f}{sign}, other tasks"]]
    for key, run in runs.items():
        for name in (*TRIES, "auto", "auto, prior"):
            of = run["variants"][name]
            rows.append([f"{name}, {key}", *[
                shown(of["tasks"][task]["decode"]) if task in of["tasks"]
                else "" for task in TASKS], shown(of["mean"]["decode"])])
    return make_table(
        "Tables 1 to 3: speed-up by the clock",
        ["drafter", *TASKS.values(), "mean of categories"], rows,
        ["Ours: passes of random weights on a CPU, where rows cost more than on "
         "the paper's GPU, accepted by the recording, after prefill, with 95 % "
         "intervals; [speedup.md](speedup.md) has every mode. Those of all "
         "turns are estimates from windows of the outputs. "
         f"{settings(runs)}."])


def shares(runs):
    rows = []
    for key, run in runs.items():
        for name in TRIES:
            of = run["variants"][name]
            for task in PLACES:
                part = of["tasks"][task]
                drafting = part["drafting"] - part["indexing"]
                rest = 1 - part["drafting"] - part["verifying"]
                rows.append([f"{name}, {key}, {PLACES[task]}", *[
                    [100 * share, 3] for share in
                    (part["indexing"], drafting, part["verifying"], rest)]])
    return make_table(
        "Figure 5: where the time goes, %",
        ["", "building the trie of the prompt", "drafting and learning",
         "verifying", "rest"], rows,
        ["The paper's values are not available. Ours is the time after "
         "prefill, from the runs of the table above."])
