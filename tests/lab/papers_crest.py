"""CREST's tables beside ours, from crest_runs.json."""
import re

from papers_lookups import lookups
from report_table import against, make_table, mark, sources_table


# Set, its longest n, the paper's figure and the settings of both, by corpus.
HALVES = {
    "chat": ("mtbench", 4, "figure_6", "MT-Bench, Vicuna-7B; paper: ShareGPT, "
             "{}; ours: chats, a store of {:.1f} MB"),
    "code": ("code", 5, "figure_7", "paper: HumanEval, CodeLlama-7B, The "
             "Stack, {}; ours: HumanEval and MBPP, WizardCoder-33B, Python, a "
             "store of {:.1f} MB")}
TOPS = ["1000", "16000", "64000", "256000", "all"]


def headline(runs, half):
    """The numbers of Figures 6 and 7: accept lengths, and CREST over REST with
    and without REST's fallback to one token (`min_n=1`)."""
    name, longest, _, _ = HALVES[half]
    def at(key):
        return runs[f"{half}/{key}/100"]["sets"][name]["accept_length"]
    store = rest_bytes(runs, half)
    points = [(run["bytes"], run["sets"][name]["accept_length"])
              for key, run in runs.items()
              if re.fullmatch(f"{half}/crest/max{longest}/rest/\\d+", key)]
    found = {"store": store, "crest": max(
        length for size, length in points if size <= store)}
    for label, mode in (("rest", "rest"), ("fallback", "rest:min_n=1")):
        length = at(mode)
        enough = min((size for size, reached in points if reached >= length),
                     default=None)
        found[label] = {
            "length": length,
            "longer": 100 * (found["crest"] / length - 1),
            "same_space": gap(runs, half, name, points, mode),
            "less_space": store / enough if enough else None}
    return found


def crest(sources):
    paper, runs = sources["published"]["crest"], sources["crest"]
    rows = []
    for half, (name, longest, figure, setting) in HALVES.items():
        theirs, ours = paper[figure], headline(runs, half)
        rest, fallback = ours["rest"], ours["fallback"]
        sign = mark(paper, figure)
        explained = 100 * (1 - fallback["longer"] / rest["longer"])
        again = f"{name}: the same, REST with a 1-gram fallback"
        rows += [
            (f"{name}: REST", theirs["REST"], rest["length"], 2,
             setting.format(theirs["store"] + sign, ours["store"] / 1e6),
             "another store", sign),
            (f"{name}: CREST", theirs["CREST"], ours["crest"], 2,
             f"best of n <= {longest}, REST's cut", "another corpus", sign),
            (f"{name}: CREST longer than REST's whole store, %",
             100 * (theirs["CREST"] / theirs["REST"] - 1), rest["longer"], 1,
             "best CREST, in less space; paper: computed, "
             f"{theirs['CREST']:.2f} / {theirs['REST']:.2f}", "", sign),
            (again, "not in the paper", fallback["longer"], 1,
             "`rest:min_n=1`", "REST as published takes no match below two "
             f"tokens: that is {explained:.0f} % of CREST's gain", ""),
            (f"{name}: CREST longer in the same space, %",
             paper["longer_percent"], rest["same_space"], 1,
             "largest gap to the next larger sample of REST's store", "",
             mark(paper, "longer_percent")),
            (again, "not in the paper", fallback["same_space"], 1, "", "", ""),
            (f"{name}: space for REST's accept length, times less",
             paper["less_space"], rest["less_space"], 1,
             "smallest measured store that reaches it", "a small corpus holds "
             "few of the n-grams that REST's long matches need; our codec",
             mark(paper, "less_space")),
            (again, "not in the paper", fallback["less_space"], 1, "", "", "")]
    tables = [sources_table(paper),
              against("Figures 6 and 7, and the headline", rows)]
    single, upto = [], []
    for half, (name, longest, _, _) in HALVES.items():
        for flag, found in (("only", single), ("max", upto)):
            for n in range(1, longest + 1):
                entry = [f"{name}, " + (f"n = {n} alone" if flag == "only"
                                        else f"n <= {n}")]
                for top in TOPS:
                    run = runs.get(f"{half}/crest/{flag}{n}/rest/{top}")
                    entry.append([run["sets"][name]["accept_length"], 3]
                                 if run else "-")
                whole = runs.get(f"{half}/crest/{flag}{n}/rest/all")
                entry.append([whole["entries"], 0] if whole else "-")
                found.append(entry)
    columns = ["", "t = 1,000", "t = 16,000", "t = 64,000", "t = 256,000",
               "all that occur twice", "n-grams then stored"]
    tables.append(make_table(
        "Figure 8: a single n, accept length", columns, single,
        [f"Paper: n = {paper['figure_8_best_single_n']}"
         f"{mark(paper, 'figure_8')} is the best single length. Ours: " +
         " and ".join(f"n = {n}" for n in best_single(runs)) +
         ", the best in every column. Probably the corpora are too small: " +
         " and ".join(f"{corpus_tokens(runs, half) / 1e6:.1f} million"
                      for half in HALVES) + " tokens hold few repeats of a "
         "longer n-gram. A dash: not built."]
        if len(best_single(runs)) == 1 else
        [f"Paper: n = {paper['figure_8_best_single_n']}"
         f"{mark(paper, 'figure_8')} is the best single length. Ours, by "
         f"column: {', '.join(map(str, best_single(runs)))}. A dash: not "
         "built."]))
    figure_9 = paper["figure_9"]
    sign = mark(paper, "figure_9")
    tables.append(make_table(
        "Figure 9: all n up to m, accept length", columns, upto,
        [f"Paper, code: a peak of {figure_9['peak']}{sign} at "
         f"{figure_9['ngrams'] / 1e6}{sign} million n-grams "
         f"({figure_9['prompts']}{sign} prompts), then a fall. Ours, with "
         "all lengths: " + "; ".join(peak(runs, half) for half in HALVES) +
         "."]))
    counts = []
    for half, (name, longest, _, _) in HALVES.items():
        levels = runs[f"{half}/crest/max{longest}/rest/1000"]["levels"]
        counts.append((f"{half}, n <= {longest}",
                       paper["table_1_distinct"][half] / 1e6,
                       sum(l["distinct"] for l in levels) / 1e6, 1,
                       "paper: n <= 5", "another corpus",
                       mark(paper, "table_1")))
    tables.append(against("Table 1: distinct n-grams, millions", counts))
    trees = []
    for half, (name, longest, _, _) in HALVES.items():
        for n in range(1, longest + 1):
            entry = [f"{half}, n = {n}"]
            for top in TOPS:
                run = runs.get(f"{half}/crest/only{n}/rest/{top}")
                entry.append([run["mean_nodes"], 1] if run else "-")
            trees.append(entry)
    tables.append(make_table(
        "Table 2: mean nodes of a tree, REST's cut", columns[:-1], trees,
        [f"Paper: {paper['table_2_nodes'][0]} to {paper['table_2_nodes'][1]}"
         f"{mark(paper, 'table_2')} nodes of 64 paid for, by n. Trees of the "
         "most frequent 64 nodes (ours, `--selection best`, n <= 3) have "
         f"{best_nodes(runs)}: crest.md."]))
    tables.append(text_shares(runs))
    tables.append(start_lengths(runs))
    tables.append(sizes(runs))
    tables.append(relations(runs))
    tables += lookups(sources["lookups"])
    tables.append(make_table(
        "Not measured, or not available", ["table or figure", "why"], [
            ["Figures 6 and 7 at the paper's size", "whole ShareGPT and The "
             "Stack are not available"]]))
    return {"title": paper["title"], "text": [f"Source: {paper['source']}."],
            "tables": tables}


def single(runs, half, n, top):
    """Accept length with n-grams of one length; None where not built."""
    run = runs.get(f"{half}/crest/only{n}/rest/{top}")
    return run and run["sets"][HALVES[half][0]]["accept_length"]


def best_single(runs):
    """The single lengths that are the best in some column where two or more
    were built."""
    best = set()
    for half, (_, longest, _, _) in HALVES.items():
        for top in TOPS:
            built = {n: single(runs, half, n, top)
                     for n in range(1, longest + 1)
                     if single(runs, half, n, top)}
            if len(built) > 1:
                best.add(max(built, key=built.get))
    return sorted(best)


def peak(runs, half):
    """Where accept length over t is greatest, and what it falls to."""
    name, longest, _, _ = HALVES[half]
    built = {top: runs[f"{half}/crest/max{longest}/rest/{top}"]["sets"][name][
        "accept_length"] for top in TOPS
        if f"{half}/crest/max{longest}/rest/{top}" in runs}
    top = max(built, key=built.get)
    last = list(built)[-1]
    def shown(t):
        return t if t == "all" else f"{int(t):,}"
    text = f"{name}, the peak is {built[top]:.3f} at t = {shown(top)}"
    if top == last:
        return text + ", the largest built"
    return text + f", then {built[last]:.3f} at t = {shown(last)}"


def best_nodes(runs):
    found = [run["mean_nodes"] for key, run in runs.items()
             if re.fullmatch(r"\w+/crest/max3/best/\d+", key)]
    return f"{min(found):.0f} to {max(found):.0f}"


def gap(runs, half, name, points, mode):
    """By how many percent CREST's accept length exceeds that of REST's next
    larger sample, at most over all of CREST's sizes."""
    samples = []
    for key, run in runs.items():
        found = re.fullmatch(f"{half}/{mode}/(\\d+)", key)
        if found:
            samples.append((rest_bytes(runs, half) * int(found[1]) / 100,
                            run["sets"][name]["accept_length"]))
    samples.sort()
    gaps = []
    for size, length in points:
        larger = [rest for bytes_, rest in samples if bytes_ >= size]
        if larger:
            gaps.append(100 * (length / larger[0] - 1))
    return max(gaps)


def rest_bytes(runs, half):
    """6 bytes a token of REST's store: 2 of text, 4 of suffix array."""
    return 6 * corpus_tokens(runs, half)


def corpus_tokens(runs, half):
    return next(run["corpus_tokens"] for key, run in runs.items()
                if key.startswith(f"{half}/crest/"))


def text_shares(runs):
    rows = []
    for key, run in runs.items():
        found = re.fullmatch(r"chat/(text/(\d+)|crest/max4/rest/16000)", key)
        if found:
            tokens = run["tokens" if found[2] else "corpus_tokens"]
            rows.append((tokens, [
                f"{found[2] or 100} %", [tokens, 0], [run["entries"], 0],
                [run["mean_nodes"], 1], [run["bytes"] / 1e6, 2],
                [run["sets"]["specbench"]["accept_length"], 3],
                [run["sets"]["mtbench"]["accept_length"], 3]]))
    return make_table(
        "Section 5.5: more text at the same number of n-grams",
        ["of the text", "tokens", "n-grams", "mean nodes", "MB", "specbench",
         "mtbench"], [row for _, row in sorted(rows)],
        ["n <= 4, t = 16,000, REST's cut, random rows of the chat text. The "
         "paper's values are not available."])


def start_lengths(runs):
    rows = []
    for key, run in runs.items():
        found = re.fullmatch(r"chat/rest(?::max_n=(\d+))?/100", key)
        if found:
            rows.append([int(found[1] or 16),
                         [run["sets"]["specbench"]["accept_length"], 3],
                         [run["sets"]["mtbench"]["accept_length"], 3],
                         [run["sets"]["mtbench"]["nodes"], 1]])
    rows.sort(key=lambda row: row[0])
    return make_table(
        "Figure 3: REST by the length that its match begins with",
        ["longest match", "specbench", "mtbench", "mtbench, nodes per round"],
        [[str(row[0]), *row[1:]] for row in rows],
        ["`rest:max_n=`, whole chat store, down to matches of two tokens. The "
         "paper's values are not available. " + falls(rows)])


def falls(rows):
    """Whether accept length falls as the longest match grows, in words."""
    for column in (1, 2):
        lengths = [round(row[column][0], 3) for row in rows]
        if lengths != sorted(lengths, reverse=True):
            return "Accept length does not fall with the length of the match."
    return ("The shorter the match that REST begins with, the more is accepted, "
            "probably since a long match has few continuations.")


def sizes(runs):
    rows = []
    for half, (name, longest, _, _) in HALVES.items():
        store = rest_bytes(runs, half)
        tokens = store // 6
        for top in ("4000", "16000", "64000"):
            run = runs[f"{half}/crest/max{longest}/rest/{top}"]
            plain = 8 * run["nodes"] + 8 * run["entries"]
            rows.append([f"{half}, n <= {longest}, t = {int(top):,}",
                         [store / 1e6, 2], [plain / 1e6, 2],
                         [run["bytes"] / 1e6, 2], [store / plain, 1],
                         [plain / run["bytes"], 1], [store / run["bytes"], 1],
                         [run["nodes"] / tokens, 2]])
    return make_table(
        "How much of the size is selection, and how much codec",
        ["datastore", "REST's store, MB", "selected, plain, MB",
         "snapshot, MB", "by selection, times", "by codec, times", "together",
         "nodes per corpus token"], rows,
        ["Plain: 8 bytes per node (token and parent, 32 bits each) and 8 per "
         "n-gram. Selection is what choosing n-grams and cutting trees saves "
         "against REST's 6 bytes per token; the rest is the codec. The paper "
         "pickles and compresses with lzma; its share is not available."])


def relations(runs):
    rows = []
    for key, run in runs.items():
        found = re.fullmatch(r"chat/postgres/max(\d)/rest/(\w+)", key)
        if found:
            rows.append((run["entries"], [
                f"n <= {found[1]}, t = {int(found[2]):,}", [run["entries"], 0],
                [run["snapshot_bytes"] / 1e6, 2],
                [run["total_bytes"] / 1e6, 2], [run["table_bytes"] / 1e6, 2],
                [run["index_bytes"] / 1e6, 2],
                [run["total_bytes"] / run["snapshot_bytes"], 2]]))
    return make_table(
        "The same datastores in PostgreSQL",
        ["chat datastore", "n-grams", "snapshot, MB",
         "pg_total_relation_size, MB", "table, MB", "index, MB",
         "relation / snapshot"], [row for _, row in sorted(rows)],
        ["One row per n-gram: a 64-bit key and the encoded tree, B-tree on the "
         "key. The paper's own sizes in PostgreSQL are not available."])
