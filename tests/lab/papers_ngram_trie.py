"""N-Gram-Trie's tables beside ours, from papers_runs.json."""
from papers_crest import rest_bytes
from papers_speed import speed
from report_table import against, make_table, mark, sources_table, span
from svg_plot import Plot

TASKS = ["mt_bench", "translation", "summarization", "qa", "math_reasoning",
         "rag"]
GRID_N = range(8, 17)
GRID_LP = range(2, 6)
NUM_DRAFT = [8, 16, 32, 64, 128, 256]
NOISE = {"words": [0, 10, 25, 50, 100], "prompts": [1, 4, 16]}
TIMED_SETS = ["specbench", "mtbench", "shopping", "classeval", "financebench",
              "code", "gsm8k"]
DRAFT_RUNS = {run: f"vicuna-68m draft (SpS), run {run}" for run in "AB"}
LONGEST_SHOWN = 10  # of Figure 4; longer rounds are one column


def length(run, task=None):
    return (run["categories"][task] if task else run)["accept_length"]


def shares(counts):
    """Percent of rounds by length, 1..LONGEST_SHOWN and what is longer."""
    total = sum(counts)
    counts = counts + [0] * LONGEST_SHOWN
    return [100 * c / total for c in counts[:LONGEST_SHOWN]] + [
        100 * sum(counts[LONGEST_SHOWN:]) / total]


def trie_milliseconds(runs):
    """Processor time to build the trie of a prompt, by set."""
    found = {}
    for name in TIMED_SETS:
        run = runs[f"trie time/{name}"]
        found[name] = (run["prompt_us_per_token"] * run["prompt_tokens"] /
                       run["turns"] / 1000)
    return found


def ngram_trie(sources, plots):
    paper, runs = sources["published"]["ngram_trie"], sources["runs"]
    published = runs["n-gram trie, as published"]
    methods = runs["reference_runs"]["methods"]
    table_1 = paper["table_1"]
    lengths = table_1["accept_length"]
    sign = mark(paper, "table_1")
    order = ("the opposite" if (lengths["rag"] > lengths["summarization"]) !=
             (length(published, "rag") > length(published, "summarization"))
             else "the same")
    lookup = runs["prompt lookup"]
    rows = [(task, lengths[key], length(published, key), 2,
             "prompt only, n = 13, L_p = 3, 32 nodes", "unknown, see above",
             sign)
            for task, key in (("summarization", "summarization"),
                              ("RAG", "rag"))]
    rows += [(name, value, None, 2, "", "no recorded outputs", sign)
             for name, value in (
                 ("TriviaQA", lengths["TriviaQA"]),
                 ("HAGRID", lengths["HAGRID"]),
                 ("RAG, Llama2-7B-Chat", table_1["llama2_rag_accept_length"]))]
    rows += [(f"RAG, vicuna-68m as draft model, run {run}",
              table_1["vicuna_68m_rag_accept_length"],
              methods[DRAFT_RUNS[run]]["rag"]["accept_length"], 2,
              "recorded by others on the questions of our set", "unknown",
              sign) for run in DRAFT_RUNS]
    tables = [
        sources_table(paper),
        against("Table 1: accept length, Vicuna-7B", rows, [
            f"RAG and summarization come out in {order} order here, and "
            f"prompt lookup has {length(lookup, 'summarization'):.2f} on "
            f"summarization, {length(lookup, 'rag'):.2f} on RAG. Probably the "
            "paper's questions for RAG, or their template, differ; its code is "
            "not public. The next table compares our set with the "
            "benchmark's leaderboard."]),
        leaderboard(sources)]
    def row(name, per_task):
        return [name] + [[per_task(task), 2] for task in (*TASKS, None)]
    table = [row(name, lambda task, r=runs[key]: length(r, task))
             for name, key in (
                 ("n-gram trie, as published", "n-gram trie, as published"),
                 ("n-gram trie, learning, 64", "n-gram trie, learning"),
                 ("prompt lookup", "prompt lookup"), ("REST", "REST"),
                 ("auto, request only", "auto, request only"),
                 ("auto, 10 MB prior", "auto, with a prior"))]
    recorded = [*DRAFT_RUNS.values(), "EAGLE, run B"]
    table += [row(f"{name} (recorded)", lambda task, m=methods[name]:
                  m[task or "ALL"]["accept_length"]) for name in recorded]
    tables.append(make_table(
        "Table 1: ours by task, accept length",
        ["drafter", *TASKS, "ALL"], table))
    speeds = []
    for name in recorded:
        base = methods[f"vanilla autoregressive, {name[-5:]}"]
        speeds.append([name] + [
            [methods[name][t]["tokens_per_second"] /
             base[t]["tokens_per_second"], 2] for t in (*TASKS, "ALL")])
    tables.append(make_table(
        "Table 1: wall-clock speed-up in the recorded runs",
        ["drafter", *TASKS, "ALL"], speeds,
        ["Wall times of those runs on their own GPUs, over plain decoding in "
         "the same run. The paper's trie: " + ", ".join(
             f"{k} {v:.2f}{sign}" for k, v in table_1["speedup"].items()) +
         "; mean with Llama2-7B-Chat "
         f"{table_1['llama2_mean_speedup']:.2f}{sign}, "
         f"with Llama3-8B-Instruct {table_1['llama3_mean_speedup']:.2f}{sign}. "
         "Ours is below."]))
    for task in ("rag", "summarization", None):
        tables.append(make_table(
            f"Table 2: n and L_p, {task or 'ALL'}, accept length",
            ["L_p \\ n", *map(str, GRID_N)],
            [[str(lp)] + [[length(runs[f"grid/{n}/{lp}"], task), 3]
                          for n in GRID_N] for lp in GRID_LP],
            [grid_text(paper, runs, task)]))
    sizes = [[f"{task or 'ALL'}"] + [
        [length(runs[f"num_draft/{s}"], task), 3] for s in NUM_DRAFT]
        for task in ("summarization", "rag", None)]
    sizes.append(["nodes drafted"] + [
        [runs[f"num_draft/{s}"]["mean_tree_nodes"], 1] for s in NUM_DRAFT])
    tables.append(make_table(
        "Table 3: nodes in a draft, accept length",
        ["as published", *map(str, NUM_DRAFT)], sizes,
        ["Paper, speed-up from {} to {} nodes: ".format(
            *paper["table_3"]["num_draft"]) + ", ".join(
                f"{task} {span(*paper['table_3'][task], 2)}"
                f"{mark(paper, 'table_3')}"
                for task in ("summarization", "rag")) + "."
         f" From 32 to {NUM_DRAFT[-1]} nodes our accept length grows by " +
         ", ".join(f"{grown(runs, task):.1f} % ({task})"
                   for task in ("summarization", "rag")) + "."]))
    noise = []
    kinds = {"words": "{} % of the words replaced",
             "prompts": "{} other prompts in front"}
    for kind, levels in NOISE.items():
        for level in levels:
            entry = [kinds[kind].format(level)]
            for name in ("published", "learning"):
                run = runs[f"noise/{kind}/{level}/{name}"]
                entry += [[length(run, task), 2]
                          for task in ("summarization", "rag", None)]
            noise.append(entry)
    tables.append(make_table(
        "Table 4: noise in the context, accept length",
        ["noise", *[f"{name}, {task}" for name in ("as published", "learning")
                    for task in ("summarization", "rag", "ALL")]], noise,
        ["The paper's values and its kind of noise are not available. Ours: "
         "each word of a prompt is replaced, with the given probability, by a "
         "random word of the other prompts, or other prompts stand in front; "
         "the recorded answers stay, so that this is what noise costs the "
         "trie, not what it does to the model."]))
    tables.append(distribution(runs, plots))
    time = []
    for name in TIMED_SETS:
        run = runs[f"trie time/{name}"]
        time.append([name, [run["prompt_tokens"] / run["turns"], 0],
                     [run["prompt_us_per_token"], 2],
                     [trie_milliseconds(runs)[name], 3]])
    tables.append(make_table(
        "Table 6: building the trie of a prompt",
        ["set", "mean prompt tokens", "us per token, CPU", "ms per prompt, CPU"],
        time,
        [f"Paper: {trie_paper(paper)}. Ours is "
         "processor time of one thread, measured beside other work (load "
         "above), which shares the caches, on another machine than the "
         "paper's. The paper's code is not public. Our trie has nodes only for "
         "what occurs twice."]))
    tables += speed(paper, sources["speedup"])
    tables.append(make_table(
        "Not measured, or not available", ["table or figure", "why"], [
            ["speed-ups of Tables 1 to 3 with the paper's models", "not "
             "measured: the models and a GPU are not available"],
            ["Figure 5", "the paper's values are not available"],
            ["Table 5", "the paper's table is not available"]]))
    return {"title": paper["title"], "text": [f"Source: {paper['source']}."],
            "tables": tables}


def leaderboard(sources):
    """Lengths of our set beside one column of Spec-Bench's leaderboard."""
    board, runs = sources["published"]["spec_bench"], sources["runs"]
    theirs, other = board["accept_length"], board["other_accept_length"]
    methods = runs["reference_runs"]["methods"]
    store = rest_bytes(sources["crest"], "chat") / 1e6
    rows = [("prompt lookup", theirs["prompt lookup"],
             length(runs["prompt lookup"]), 2, "replay", "", ""),
            ("REST", theirs["REST"], length(runs["REST"]), 2,
             f"replay, chat text (a store of {store:.1f} MB in CREST's tables)",
             "the leaderboard's store is another one", "")]
    rows += [(f"vicuna-68m, run {run}", theirs["vicuna-68m"],
              methods[name]["ALL"]["accept_length"], 2, "recorded by others",
              "", "") for run, name in DRAFT_RUNS.items()]
    rows += [("EAGLE, run B", theirs["EAGLE"],
              methods["EAGLE, run B"]["ALL"]["accept_length"], 2,
              "recorded by others", "", ""),
             ("lookahead", theirs["lookahead"], None, 2, "",
              "a replay has no model to look ahead with", "")]
    return against(
        f"Spec-Bench's leaderboard, {board['model']}: accept length", rows,
        [f"{board['source']} at {board['version']}, the table of the "
         f"{board['device']}, all questions; ours has 336 of the 480. "
         f"The {board['other_device']}'s table of the same version has " +
         ", ".join(f"{name} {value:.2f}" for name, value in other.items()) +
         ". The leaderboard has one value for vicuna-68m; runs A and B are two "
         "recordings by others (BNukhkadiev/Spec-Bench and "
         "yukiki-jc/Spec-Bench). Whether run A is the leaderboard's own run is "
         "not known: if it is, its agreement shows nothing."],
        theirs=f"leaderboard, {board['device']}, {board['version']}")


def grid_text(paper, runs, task):
    """What the grid of n and L_p shows, computed."""
    found = {(n, lp): length(runs[f"grid/{n}/{lp}"], task)
             for n in GRID_N for lp in GRID_LP}
    low, high = min(found.values()), max(found.values())
    n, lp = max(found, key=found.get)
    text = (f"Ours: {span(low, high, 3)}, {100 * (high / low - 1):.1f} % "
            f"apart, longest at n = {n} and L_p = {lp}.")
    if task == "rag":
        sign = mark(paper, "table_2")
        text = ("The paper gives tokens per second on RAG: {lowest} to "
                "{highest}{sign}, best {best[tokens_per_second]}{sign} at "
                "n = {best[n]} and L_p = {best[lp]}. ".format(
                    sign=sign, **paper["table_2"]) + text)
    return text


def grown(runs, task):
    """By how many percent more than 32 nodes lengthen what is accepted."""
    return 100 * (length(runs[f"num_draft/{NUM_DRAFT[-1]}"], task) /
                  length(runs["num_draft/32"], task) - 1)


def trie_paper(paper):
    low, high = paper["table_6"]["ms"]
    return (f"{low} to {' or '.join(map(str, high))}"
            f"{mark(paper, 'table_6')} ms")


def distribution(runs, plots):
    """Figure 4, and its plots."""
    drafters = [("n-gram trie, as published",
                 runs["n-gram trie, as published"]),
                ("n-gram trie, learning", runs["n-gram trie, learning"]),
                ("prompt lookup", runs["prompt lookup"]),
                ("auto, 10 MB prior", runs["auto, with a prior"])]
    head = [str(i) for i in range(1, LONGEST_SHOWN + 1)] + [
        f"over {LONGEST_SHOWN}"]
    rows = []
    def add(plot, name, counts):
        values = shares(counts)
        rows.append([name] + [[v, 1] for v in values])
        if plot:
            plot.add(name, zip(head, values))
    whole = Plot("Rounds by accept length, Spec-Bench",
                 "tokens committed in a round", "% of rounds", head)
    for name, run in drafters:
        add(whole, name, run["rounds_by_length"])
    # The legend has room for short names.
    for name, short in (("vicuna-68m draft (SpS), run A",
                         "vicuna-68m (recorded)"),
                        ("EAGLE, run B", "EAGLE (recorded)")):
        add(whole, short, runs["reference_runs"]["rounds_by_length"][name])
    by_task = Plot("Rounds by accept length, n-gram trie as published",
                   "tokens committed in a round", "% of rounds", head)
    for task in TASKS:
        run = runs["n-gram trie, as published"]["categories"][task]
        values = shares(run["rounds_by_length"])
        by_task.add(task, zip(head, values))
        rows.append([f"n-gram trie, as published, {task}"] +
                    [[v, 1] for v in values])
    plots["papers_lengths.svg"] = whole
    plots["papers_lengths_by_task.svg"] = by_task
    return make_table(
        "Figure 4: distribution of accept lengths, % of rounds",
        ["drafter", *head], rows,
        ["The paper's values are not available. `foretoken replay --json` gives "
         f"the counts as `rounds_by_length`. {rows[0][1][0]:.0f} % of the "
         "published trie's rounds accept nothing, and "
         f"{rows[0][-1][0]:.1f} % commit more than {LONGEST_SHOWN} tokens."],
        ["papers_lengths.svg", "papers_lengths_by_task.svg"])
