"""Ouroboros' tables beside ours: those of the demo pair, which stand in
ouroboros.md, and those of drafts of a chosen agreement."""
import re

from papers_agreement import agreement_tables
from report_table import against, make_table, mark, sources_table

SPEEDS = [
    "off", "draft_model:gamma=1", "draft_model:gamma=5", "ouroboros",
    "ouroboros:passes=1,window=1,beta=6,suffixes=0,lookahead=0,context=1"]


def markdown_rows(text, heading, like):
    """Rows of the tables under `heading` whose first cell is in `like`."""
    section = text.split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    rows = []
    for line in section.splitlines():
        cells = [c.strip() for c in line.strip("| ").split(" | ")]
        if line.startswith("|") and cells[0] in like:
            rows.append(cells)
    return rows


def course(values):
    """Whether a row of numbers rises, in words."""
    return "rises" if sorted(set(values)) == values else "does not rise"


def warm_start(text):
    """Accept lengths with a pool cold, warm and shuffled, warm and in order, by
    mode."""
    found = markdown_rows(text, "Warm start and the order of tasks",
                          ("ouroboros:passes=1", "ouroboros"))
    return {row[0]: [float(cell) for cell in row[1:4]] for row in found}


def over_plain(text):
    """Ouroboros' speed over plain decoding's on the demo pair."""
    return float(markdown_rows(text, "Speed", ("ouroboros",))[0][8])


def published_over_plain(paper):
    """The least and the most of Table 2's Ouroboros over greedy decoding."""
    ratios = [pair["ouroboros"] / pair["greedy"]
              for pairs in paper["table_2"].values() for pair in pairs.values()]
    return [min(ratios), max(ratios)]


def ouroboros(sources):
    paper, text = sources["published"]["ouroboros"], sources["ouroboros"]
    commit = re.search(r"Commit ([0-9a-f]+)", text).group(1)
    tables = [sources_table(paper), against("Headline", [
        (f"{name.replace('_', ' ')} decoding, at most", value, None, 1,
         "the best pair of models", "needs a target and a draft of the paper's "
         "agreement", mark(paper, name))
        for name, value in paper["headline"].items()])]
    rows = []
    for task, pairs in paper["table_2"].items():
        for pair, speeds in pairs.items():
            rows.append([task, pair] + [[speeds[k], 2] for k in (
                "greedy", "speculative", "lookahead", "ouroboros", "warm")] +
                [[speeds["ouroboros"] / speeds["greedy"], 2],
                 [speeds["warm"] / speeds["greedy"], 2],
                 [speeds["ouroboros"] / speeds["speculative"], 2]])
    tables.append(make_table(
        "Table 2: speed (the paper's tokens/s; ours not measured)",
        ["task", "models", "greedy", "speculative", "lookahead", "Ouroboros",
         "warm start", "Ouroboros / greedy", "warm / greedy",
         "Ouroboros / speculative"], rows,
        ["Not measured: no models of 34 or 70 billion parameters ran here. "
         "What carries over is the accept length at equal draft passes, two "
         "tables below."]))
    speed = {r[0]: r for r in markdown_rows(text, "Speed", SPEEDS)}
    tables.append(make_table(
        "Ours: speed on the demo pair",
        ["mode", "accept length", "tokens a second of processor time",
         "over plain decoding"],
        [[mode, [float(speed[mode][1]), 2], [float(speed[mode][7]), 0],
          [float(speed[mode][8]), 2]] for mode in SPEEDS],
        [f"Commit {commit}, from ouroboros.md. At the paper's settings "
         f"Ouroboros has {float(speed['ouroboros'][8]):.2f} of plain decoding's "
         "speed here: a pass of one row of this target takes "
         f"{1000 / float(speed['off'][7]):.2f} ms, and rows are not free on a "
         "CPU."]))
    equal = []
    for prompts, g, chain, _, ours, _, warm, _ in [
            r for r in markdown_rows(text, "At equal draft passes",
                                     ("code", "stories"))
            if len(r) == 8][:8]:
        chain, ours, warm = float(chain), float(ours), float(warm)
        equal.append([prompts, g, [chain, 3], [ours, 3], [warm, 3],
                      [ours / chain, 2]])
    tables.append(make_table(
        "Ours: accept length at equal draft passes",
        ["prompts", "draft passes per round", "speculative chain", "Ouroboros",
         "warm start", "Ouroboros / chain"], equal,
        [f"Demo pair, temperature 0, commit {commit}. Lookahead is not in this "
         "table: it has no draft passes."]))
    names = {"none": "none", "inspiration": "inspiration",
             "suffixes": "suffixes",
             "inspiration, suffixes": "inspiration, suffixes",
             "suffixes, refinement": "suffixes, refinement", "all": "all"}
    ours = {r[0]: r for r in markdown_rows(text, "Ablations", names)}
    none = [float(ours["none"][1]), float(ours["none"][4])]
    rows = []
    for name in names:
        value = paper["table_3"][name]
        code, stories = float(ours[name][1]), float(ours[name][4])
        rows.append([name, [value, 1, mark(paper, "table_3")],
                     [value / paper["table_3"]["none"], 2],
                     [code, 3], [code / none[0], 2], [stories, 3],
                     [stories / none[1], 2]])
    tables.append(make_table(
        "Table 3: parts switched on one by one",
        ["parts", "paper, tokens/s", "over none", "ours, accept length, code",
         "over none", "ours, stories", "over none"], rows,
        ["Paper: HumanEval, Yi. The sizes differ because ours are accept "
         "lengths, which hold no cost, of a pair with little agreement: "
         "inspiration needs matches behind the first difference, which are "
         "rare there."]))
    warm = warm_start(text)
    rows = []
    for i, order in enumerate(("cold", "warm, shuffled", "warm, consecutive")):
        value = paper["table_4"][order]
        one, whole = warm["ouroboros:passes=1"][i], warm["ouroboros"][i]
        rows.append([order, [value, 1, mark(paper, "table_4")],
                     [value / paper["table_4"]["cold"], 2],
                     [one, 3],
                     [one / warm["ouroboros:passes=1"][0], 2],
                     [whole, 3], [whole / warm["ouroboros"][0], 2]])
    tables.append(make_table(
        "Table 4: warm start and the order of tasks",
        ["pool", "paper, tokens/s", "over cold",
         "ours, one draft pass, accept length", "over cold",
         "ours, as published", "over cold"], rows,
        [f"In the paper's order of the three rows, accept length with one "
         f"draft pass per round {course([r[3][0] for r in rows])}, as "
         f"published it {course([r[5][0] for r in rows])}."]))
    k = [r for r in markdown_rows(text, "Suffixes", ("0", "1", "2", "3", "5"))]
    tables.append(make_table(
        "Figure 5: suffixes (K)",
        ["K", "paper", "ours, accept length, code", "ours, stories"],
        [[r[0], "not available", [float(r[1]), 3], [float(r[3]), 3]] for r in k],
        ["Two draft passes per round, demo pair."]))
    tables += agreement_tables(sources)
    tables.append(make_table(
        "Not measured, or not available", ["table or figure", "why"], [
        ["Table 1, Figure 3", "the paper's values are not available"],
        ["Figure 4 (greedy, speculative, lookahead, Ouroboros on HumanEval and "
         "MBPP)", "the paper's values are not available; ours is projected"],
        ["Figure 6", "the paper's values are not available"],
        ["Table 7 (settings by task)", "named `ouroboros:preset=...`, from the "
         "authors' benchmark scripts (common/speculation/ouroboros_presets.h); "
         "not checked against the table"]]))
    return {"title": paper["title"], "text": [f"Source: {paper['source']}."],
            "tables": tables}
