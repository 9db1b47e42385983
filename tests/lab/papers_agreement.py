"""Ouroboros beside speculative and lookahead decoding with drafts of a chosen
agreement: what ouroboros_agreement.py counted, and speeds projected from
pass_times.json."""
import math

from ouroboros_agreement import (
    ABLATION_LEVEL, ABLATION_TASKS, ANY_LEVEL, BETAS, CHAINS, CONTEXT_NUMBERS,
    GAMMAS, LARGE_MODES, LARGE_TASKS, LEVELS, LONG_MODES, LONG_TOKENS,
    LOOKAHEADS, MIXED_PROMPTS, MIXED_TOKENS, NARROW, PARTS, PROMPTS, PUBLISHED,
    SHORT, SIGN_BLOCKS, SIGN_MODES, STEPS, SUFFIXES, TASKS, TOKENS)
from pass_projection import PAIRS, over_greedy, pass_ms
from report_table import make_table, mark

EQUAL_CHAIN = "draft_model:gamma=12"  # as long as Ouroboros' own
LONG_CHAIN = "draft_model:gamma=20"
# Options that the paper does not have.
OWN = [mode for mode in NARROW if "context=1" in mode]
PAPERS_OWN = [PUBLISHED, SHORT] + [mode for mode in NARROW if mode not in OWN]
PREMISE = 0.85
METHODS = [("speculative", CHAINS), ("lookahead", LOOKAHEADS),
           ("Ouroboros", PAPERS_OWN), ("Ouroboros with `context=1`", OWN)]


class Counts:
    """The kept counts of one model."""

    def __init__(self, counts, model="demo"):
        self.counts, self.model = counts, model

    def get(self, part, task, level, mode, *between):
        return self.counts.get("/".join(
            [self.model, part, task, level, *between, mode]))

    def mode(self, task, level, mode, warm=False):
        if mode in LOOKAHEADS:
            return self.get("lookahead", task, ANY_LEVEL, mode)
        return self.get("modes", task, level, mode, *["warm"] * warm)

    def levels(self):
        """Those that all tasks have, in ascending order."""
        return [level for level in sorted(LEVELS) if all(
            self.mode(task, level, mode) for task in TASKS
            for mode in (EQUAL_CHAIN, LONG_CHAIN, PUBLISHED, LOOKAHEADS[0]))]

    def counted(self, level, modes):
        """Of `modes`, those that all tasks have."""
        return [mode for mode in modes if all(
            self.mode(task, level, mode) for task in TASKS)]


def length(counts):
    return counts["tokens"] / counts["rounds"]


def passes(bins):
    return sum(bin_[1] for bin_ in bins)


def rows(bins):
    return sum(bin_[2] for bin_ in bins)


def agreement(counts):
    return counts["equal"] / counts["positions"]


def shown(value, digits=2):
    return "" if value is None else [value, digits]


def lengths(own):
    found = []
    for level in own.levels():
        for task in TASKS:
            chain, long, look, ours = (own.mode(task, level, mode) for mode in (
                EQUAL_CHAIN, LONG_CHAIN, LOOKAHEADS[0], PUBLISHED))
            warm = own.mode(task, level, PUBLISHED, warm=True)
            found.append([
                task, [agreement(ours), 3], "1.00", [length(chain), 2],
                [length(long), 2], [length(look), 2], [length(ours), 2],
                shown(warm and length(warm)),
                [length(ours) / length(chain), 2],
                [length(ours) / length(look), 2],
                [passes(chain["draft_bins"]) / chain["rounds"], 2],
                [passes(ours["draft_bins"]) / ours["rounds"], 2],
                [rows(chain["draft_bins"]) / chain["rounds"], 1],
                [rows(ours["draft_bins"]) / ours["rounds"], 1],
                [rows(ours["target_bins"]) / ours["rounds"], 1]])
    return found


def long_table(own, times):
    """The methods with outputs as long as the paper's."""
    names = ["speculative, gamma 4", "gamma 12", "lookahead", "Ouroboros"]
    found = []
    for task in TASKS:
        of = [own.get("long", task, ABLATION_LEVEL, mode)
              for mode in LONG_MODES]
        if None in of:
            return []
        found.append(
            [task, of[0]["tokens"], [agreement(of[0]), 3]] +
            [[length(each), 2] for each in of] +
            [shown(speed_free(times, "34B, 7B", each)) for each in of])
    return [make_table(
        f"Outputs of {LONG_TOKENS} tokens: accept length, projected speed",
        ["task", "tokens", "agreement", *names,
         *[f"over greedy: {name}" for name in names]], found,
        [f"{PROMPTS} prompts a task, up to {LONG_TOKENS} tokens each, the "
         f"noise of {ABLATION_LEVEL} agreement on the first {TOKENS}. The demo "
         "target repeats itself in long outputs, which lifts agreement and all "
         "methods; compare them with each other, not with the table above. "
         "Projected for 34B and 7B, rows free."])]


def best(own, times, pair, level, modes, free):
    """Of `modes`, that of the highest mean speed over the tasks."""
    def mean(mode):
        return sum(math.log(over_greedy(times, pair,
                                        own.mode(task, level, mode), free))
                   for task in TASKS)
    return max(modes, key=mean)


def speeds(own, times, pair, free):
    """Rows by level and task, and the settings by level."""
    found, settings = [], []
    for level in own.levels():
        chosen = [best(own, times, pair, level, own.counted(level, modes),
                       free) for _, modes in METHODS]
        settings.append([level] + [f"`{mode}`" for mode in chosen])
        for task in TASKS:
            of = [over_greedy(times, pair, own.mode(task, level, mode), free)
                  for mode in chosen]
            found.append((level, task, of))
    return found, settings


def held(cases, exceptions):
    """How many of the cases hold, and those that do not by name."""
    text = f"{len(cases) - len(exceptions)} of {len(cases)}"
    if exceptions:
        text += " (not: " + ", ".join(
            f"{task} {level}" for level, task in exceptions) + ")"
    return text


def timed_pairs(times):
    return [pair for pair, names in PAIRS.items()
            if all(name in times for name in names)]


def verdict(own, times):
    """How often the premise's promise holds, one line for each kind."""
    high = [level for level in own.levels() if float(level) >= PREMISE]
    cases = [(level, task) for level in high for task in TASKS]
    shorter = [(level, task) for level, task in cases if length(
        own.mode(task, level, PUBLISHED)) <= max(
            length(own.mode(task, level, mode))
            for mode in (EQUAL_CHAIN, LOOKAHEADS[0]))]
    lines = [
        f"Where the agreement is {PREMISE} or more, by task and agreement: "
        "accept length as published above the chain of as many tokens (gamma "
        f"12) and above lookahead in {held(cases, shorter)}."]
    for pair in timed_pairs(times):
        for free, what in ((True, "rows free"), (False, "rows as measured")):
            of = [found for found in speeds(own, times, pair, free)[0]
                  if found[0] in high]
            slower, both = [], []
            for level, task, (chain, look, ours, with_context) in of:
                if ours <= max(chain, look):
                    slower.append((level, task))
                if max(ours, with_context) <= max(chain, look):
                    both.append((level, task))
            lines.append(
                f"Projected speed above both, {pair}, {what}: with the paper's "
                f"options in {held(cases, slower)}; with `context=1` allowed "
                f"in {held(cases, both)}.")
    return lines


def below_premise(own, times):
    """One line: where drafts agree less often."""
    found = [(level, task, of) for level, task, of in speeds(
        own, times, "34B, 7B", True)[0] if float(level) < PREMISE]
    if not found:
        return []
    above = sum(of[2] > max(of[:2]) for _, _, of in found)
    least = min(found, key=lambda row: row[2][2] / max(row[2][:2]))
    return [f"Below {PREMISE}, 34B, 7B, rows free: projected speed above both "
            f"in {above} of {len(found)}, least "
            f"{least[2][2] / max(least[2][:2]):.2f} of the better "
            f"({least[1]}, {least[0]})."]


def matches_table(own):
    found = []
    for level in own.levels():
        for task in TASKS:
            of = own.mode(task, level, LONG_CHAIN)
            per = of["rounds"]
            found.append([task, [agreement(of), 3], [of["drafted"] / per, 1],
                          [of["accepted"] / per, 2], [of["later"] / per, 2]] +
                         [[sum(of["runs"][n:]) / per, 3] for n in (2, 4, 7)])
    return make_table(
        "Table 1: matches behind the first difference, chains of gamma 20",
        ["task", "agreement", "drafted per round", "accepted",
         "agree later", "runs of 2+", "of 4+", "of 7+"], found,
        ["The paper's values are not available. Speculative decoding with "
         "chains of 20 tokens; *agree later*: positions behind the first "
         "difference where draft and target agree, which verification computes "
         "and throws away; runs of them by length, per round."])


def sign(value, other, digits=3):
    """Of a step, in words; equal if it does not show in the digits."""
    step = round(value, digits) - round(other, digits)
    return "no change" if step == 0 else "up" if step > 0 else "down"


def ablation_steps(own, task):
    """Counts of the steps in order, empty if one is missing."""
    found = [own.mode(task, ABLATION_LEVEL, mode, warm) or
             own.get("ablation", task, ABLATION_LEVEL, mode)
             for _, mode, warm in STEPS]
    return [] if None in found else found


def speed_free(times, pair, counts):
    if pair not in timed_pairs(times):
        return None
    return over_greedy(times, pair, counts, free=True)


def ablation_table(own, times, paper):
    tasks = [task for task in ABLATION_TASKS if ablation_steps(own, task)]
    if not tasks:
        return []
    published = {"+ phrases in drafting": "none",
                 "+ longer drafts by suffixes": "suffixes",
                 "+ phrases from verification": "all"}
    found, before = [], {}
    for i, (name, _, _) in enumerate(STEPS):
        value = paper["table_3"].get(published.get(name))
        row = [name, "not available" if value is None else
               [value, 1, mark(paper, "table_3")],
               sign(value, before["paper"], 1)
               if value is not None and before.get("paper") else ""]
        before["paper"] = value or before.get("paper")
        for task in tasks:
            of = ablation_steps(own, task)[i]
            row += [[length(of), 3],
                    [passes(of["draft_bins"]) / of["rounds"], 2],
                    shown(speed_free(times, "34B, 7B", of)),
                    sign(length(of), before[task]) if task in before else ""]
            before[task] = length(of)
        found.append(row)
    columns = ["step", "paper, tokens/s", "sign"]
    for task in tasks:
        columns += [f"ours, {task}: accept length", "draft passes",
                    "projected over greedy", "sign of accept length"]
    tables = [make_table(
        "Table 3: four steps from speculative decoding to Ouroboros", columns,
        found, [
            f"Paper: HumanEval, Yi 34B/6B. Ours: drafts of {ABLATION_LEVEL} "
            "agreement, gamma 12; projected for 34B and 7B, rows free. The "
            "first step saves draft passes above all. The tables below "
            "have the third step's parts, and its sign on more prompts."])]
    if all(own.get("ablation", task, ABLATION_LEVEL, mode)
           for task in tasks for _, mode in PARTS):
        found = []
        base = paper["table_3"]
        for name, mode in PARTS:
            without = {"inspiration": "none", "inspiration, suffixes":
                       "suffixes", "suffixes, refinement": "suffixes"}[name]
            row = [name, f"against {without}",
                   sign(base[name], base[without], 1)]
            for task in tasks:
                of = own.get("ablation", task, ABLATION_LEVEL, mode)
                other = ablation_steps(own, task)[1 if without == "none" else 2]
                row += [[length(of), 3], [length(other), 3],
                        sign(length(of), length(other)),
                        f"{of['inspired']}, {of['refined']}"
                        if "inspired" in of else "not counted"]
            found.append(row)
        columns = ["parts", "compared", "the paper's sign"]
        for task in tasks:
            columns += [f"{task}: with", "without", "sign",
                        "phrases inspired, refined"]
        differ = sum(row[2] != row[3 + 4 * i + 2] for row in found
                     for i in range(len(tasks)))
        tables.append(make_table(
            "Table 3: inspiration and refinement by themselves", columns,
            found, [
                f"{differ} of {len(found) * len(tasks)} signs are not the "
                "paper's. The paper's are of speed, ours of accept length, over "
                f"{PROMPTS} prompts: steps of a few rounds, which further "
                "prompts below do not bear out."]))
    return tables + signs_table(own, times, paper)


# Student's t, 97.5 %, of the blocks of a task.
QUANTILE = {2: 4.303, 3: 3.182, 5: 2.571}[SIGN_BLOCKS - 1]


def sign_pairs(own, task):
    """(name, the paper's names of the two, [counts with, counts without] of
    each block); empty if one is missing."""
    none, inspiration, suffixes, everything = SIGN_MODES
    found = []
    for name, theirs, with_, without in (
            ("inspiration against none", ("inspiration", "none"),
             inspiration, none),
            ("inspiration and refinement, with suffixes, against suffixes",
             ("all", "suffixes"), everything, suffixes)):
        pairs = [[own.get("signs", task, ABLATION_LEVEL, mode,
                          f"block {block}") for mode in (with_, without)]
                 for block in range(SIGN_BLOCKS)]
        found.append((name, theirs, pairs))
    return [] if any(of is None for *_, pairs in found for pair in pairs
                     for of in pair) else found


def ratio_over(pairs, value):
    """Geometric mean of with / without over the blocks of a task, and its
    interval."""
    steps = [math.log(value(with_) / value(without)) for with_, without in
             pairs]
    mean = sum(steps) / len(steps)
    spread = math.sqrt(sum((step - mean) ** 2 for step in steps) /
                       (len(steps) - 1) / len(steps))
    return [math.exp(mean + side * QUANTILE * spread) for side in (0, -1, 1)]


def effect(mean, low, high):
    if low <= 1 <= high:
        return "none to be seen"
    return "up" if mean > 1 else "down"


def signs_row(task, name, theirs, pairs, times):
    steps = [sign(length(with_), length(without)) for with_, without in pairs]
    agreements = [agreement(with_) for with_, _ in pairs]
    row = [task, name, [theirs, 3], [min(agreements), 3], [max(agreements), 3]]
    row += [steps.count(step) for step in ("up", "down", "no change")]
    for value in (length, lambda of: speed_free(times, "34B, 7B", of)):
        ratio = ratio_over(pairs, value)
        row += [[each, 3] for each in ratio] + [effect(*ratio)]
    return row + [sum(with_[key] for with_, _ in pairs)
                  for key in ("inspired", "refined", "rounds")]


def signs_table(own, times, paper):
    if "34B, 7B" not in timed_pairs(times):
        return []
    base = paper["table_3"]
    found = [signs_row(task, name, base[with_] / base[without], pairs, times)
             for task in ABLATION_TASKS
             for name, (with_, without), pairs in sign_pairs(own, task)]
    if not found:
        return []
    return [make_table(
        "Table 3: inspiration on further prompts",
        ["task", "compared", "the paper's speed, ratio", "agreement from",
         "to", "blocks up", "down", "no change",
         "accept length, ratio", "low", "high", "effect",
         "projected speed, ratio", "low", "high", "effect",
         "phrases inspired", "refined", "rounds"], found, [
            f"{SIGN_BLOCKS} blocks of {PROMPTS} prompts that the tables above "
            "do not have, with the noise of those; geometric mean of the "
            "blocks' ratios with its 95 % interval by Student's t; projected "
            "for 34B and 7B, rows free. An effect that is not to be seen may "
            "still be there: the interval says how large."])]


def warm_orders(own):
    """(order, counts): cold first; empty if one is missing."""
    found = [("cold", own.get("mixed", "all", ABLATION_LEVEL, PUBLISHED,
                              "shuffled"))]
    for name, order in [
            *((f"{number} of one task, then of the next", str(number))
              for number in CONTEXT_NUMBERS), ("shuffled", "shuffled")]:
        found.append((name, own.get("mixed", "all", ABLATION_LEVEL, PUBLISHED,
                                    order, "warm")))
    return [] if any(of is None for _, of in found) else found


def warm_table(own, times, paper):
    orders = warm_orders(own)
    if not orders:
        return []
    (_, cold), *warm = orders
    published = {"cold": paper["table_4"]["cold"],
                 "shuffled": paper["table_4"]["warm, shuffled"],
                 orders[len(CONTEXT_NUMBERS)][0]:
                 paper["table_4"]["warm, consecutive"]}
    found = []
    cold_speed = speed_free(times, "34B, 7B", cold)
    for name, of in orders:
        value = published.get(name)
        speed = speed_free(times, "34B, 7B", of)
        found.append([
            name, "not available" if value is None else
            [value, 1, mark(paper, "table_4")],
            "" if value is None else [value / published["cold"], 2],
            [length(of), 3], [length(of) / length(cold), 3],
            [passes(of["draft_bins"]) / of["rounds"], 2],
            shown(speed),
            "" if speed is None else [speed / cold_speed, 2]])
    up = sum(length(of) > length(cold) for _, of in warm)
    return [make_table(
        "Table 4: warm start by context number",
        ["order of the requests", "paper, tokens/s", "over cold",
         "ours, accept length", "over cold", "draft passes per round",
         "projected over greedy", "over cold"], found,
        [f"{len(TASKS)} tasks of {MIXED_PROMPTS} requests, {MIXED_TOKENS} "
         f"tokens each, one draft of {ABLATION_LEVEL} agreement over all of "
         "them. A context number is read here as the requests of one task in "
         "a row; the paper's consecutive order is set beside the largest. "
         f"{up} of {len(warm)} warm orders are above cold by accept length. "
         "The projection, for 34B and 7B with rows free, also counts draft "
         "passes, of which a warm pool needs fewer, as the paper's speed does. "
         "One order each: differences of a few rounds mean nothing."])]


def counted_or_none(found):
    return [] if any(of is None for _, of in found) else found


def suffix_counts(own):
    return counted_or_none([(k, own.get(
        "suffixes", "HumanEval", ABLATION_LEVEL, f"ouroboros:suffixes={k}"))
        for k in SUFFIXES])


def sweep_counts(own):
    def of(mode):
        return (own.mode("HumanEval", ABLATION_LEVEL, mode) or
                own.get("sweep", "HumanEval", ABLATION_LEVEL, mode))
    return counted_or_none(
        [("as published: gamma 12, beta 8", of(PUBLISHED))] +
        [(f"gamma {gamma}", of(f"ouroboros:gamma={gamma}"))
         for gamma in (4, *GAMMAS)] +
        [(f"beta {beta}", of(f"ouroboros:beta={beta}")) for beta in BETAS])


def sweep_tables(own):
    tables = []
    def row(name, of):
        return [name, [length(of), 3],
                [passes(of["draft_bins"]) / of["rounds"], 2],
                [rows(of["draft_bins"]) / of["rounds"], 1],
                [rows(of["target_bins"]) / of["rounds"], 1]]
    columns = ["accept length", "draft passes per round",
               "draft rows per round", "target rows per round"]
    of = suffix_counts(own)
    if of:
        steps = [length(counts) for _, counts in of]
        tables.append(make_table(
            "Figure 5: suffixes (K) at high agreement", ["K", *columns],
            [row(k, counts) for k, counts in of],
            [f"The paper's values are not available. HumanEval, "
             f"{ABLATION_LEVEL} agreement, as published but for K. From K = 0 "
             f"to {SUFFIXES[-1]} accept length goes "
             f"{sign(steps[-1], steps[0])}."]))
    of = sweep_counts(own)
    if of:
        tables.append(make_table(
            "Figure 6: length of drafts and of phrases", ["setting", *columns],
            [row(name, counts) for name, counts in of],
            ["Figure 6's content was not available: gamma and beta are swept "
             f"in its place. HumanEval, {ABLATION_LEVEL} agreement."]))
    return tables


def larger_table(counts, model):
    """The same counts of a larger target, where they were made."""
    own = Counts(counts, model)
    found = []
    for task in LARGE_TASKS:
        of = [own.mode(task, ABLATION_LEVEL, mode) for mode in LARGE_MODES]
        look = own.mode(task, ANY_LEVEL, LOOKAHEADS[0])
        if look is None or None in of:
            continue
        chain, ours, narrow = of
        found.append([
            task, [agreement(ours), 3], "1.00", [length(chain), 2],
            [length(look), 2], [length(ours), 2], [length(narrow), 2],
            [length(ours) / length(chain), 2],
            [length(ours) / length(look), 2],
            [passes(chain["draft_bins"]) / chain["rounds"], 2],
            [passes(ours["draft_bins"]) / ours["rounds"], 2],
            [passes(narrow["draft_bins"]) / narrow["rounds"], 2]])
    if not found:
        return []
    return [make_table(
        f"Drafts of chosen agreement: accept length, {model}",
        ["task", "agreement", "greedy", "speculative, gamma 12", "lookahead",
         "Ouroboros", "narrow Ouroboros", "Ouroboros / gamma 12",
         "Ouroboros / lookahead", "draft passes, gamma 12", "Ouroboros",
         "narrow Ouroboros"], found, [
            f"As above, with {model} as a GGUF file in Q4_1 for the target "
            "and, disturbed, in bf16 for the draft; its own chat template. "
            f"Narrow: `{LARGE_MODES[2]}`."])]


def timed(of):
    return ("processor time of one thread" if of["clock"] == "cpu_ms"
            else f"by the clock with {of['threads']} threads")


def layered(times, *names):
    """Which shapes were not measured whole."""
    parts = [f"{name}: {times[name]['layers']} layers from the difference "
             f"between {times[name]['measured_layers']} and one" for name in
             names if times[name]["layers"]]
    return "; ".join(parts) + ". " if parts else ""


def speed_tables(own, times):
    tables = []
    loads = sorted(times[name]["made"]["load"] for name in times)
    base = ("Projected, not measured: counted passes and rows, each taken to "
            "last as long as a pass of random weights of the named shapes in "
            "bf16 at 512 tokens of context, and no longer than one of more "
            "rows. ")
    for pair in timed_pairs(times):
        target, draft = PAIRS[pair]
        one = pass_ms(times[draft], 1) / pass_ms(times[target], 1)
        free, free_settings = speeds(own, times, pair, True)
        measured, settings = speeds(own, times, pair, False)
        found = []
        for (level, task, of), (_, _, cpu) in zip(free, measured):
            found.append([task, level] + [[value, 2] for value in of] +
                         [[of[2] / max(of[0], of[1]), 2]] +
                         [[value, 2] for value in cpu] +
                         [[max(cpu[2:]) / max(cpu[0], cpu[1]), 2]])
        names = [name for name, _ in METHODS]
        tables.append(make_table(
            f"Table 2 and Figure 4: projected speed over greedy, {pair}",
            ["task", "agreement", *[f"rows free: {name}" for name in names],
             "Ouroboros / better of the two",
             *[f"rows as measured: {name}" for name in names],
             "better Ouroboros / better of the two"], found,
            [base + f"A draft pass of one row takes {one:.3f} of the target's. "
             "*Rows free*: every pass takes as long as one of one row, as "
             "nearly so on a GPU. *Rows as measured*: on "
             f"{times[target]['made']['machine']}, "
             f"{timed(times[target])}, at a load of {loads[0]:g} to "
             f"{loads[-1]:g}. {layered(times, target, draft)}Each method with "
             "the settings of its list that give the highest mean over the "
             "tasks, by agreement; the lists stand in "
             "`ouroboros_agreement.py`."]))
        tables.append(make_table(
            f"Settings chosen, {pair}",
            ["rows", "agreement", *names],
            [["free", *row] for row in free_settings] +
            [["as measured", *row] for row in settings]))
    return tables


def projected_over_greedy(sources):
    """(level, pair, speeds by task) with the paper's options, rows free; None
    if not counted."""
    own, times = Counts(sources["agreement"]), sources["pass_times"]
    pair = "34B, 7B"
    if ABLATION_LEVEL not in own.levels() or pair not in timed_pairs(times):
        return None
    found, _ = speeds(own, times, pair, True)
    return ABLATION_LEVEL, pair, [of[2] for level, _, of in found
                                  if level == ABLATION_LEVEL]


def paper_table(own, times, paper):
    """The paper's ratios over greedy beside ours, on the tasks both have."""
    level = ABLATION_LEVEL
    if level not in own.levels() or "34B, 7B" not in timed_pairs(times):
        return []
    found = []
    sign_ = mark(paper, "table_2")
    projected = {task: of for lv, task, of in speeds(
        own, times, "34B, 7B", True)[0] if lv == level}
    for task, theirs in (("GSM8K", "GSM8K"), ("Summarization", "CNN/DM")):
        for models, speed in paper["table_2"][theirs].items():
            def over(name, speed=speed):
                return [speed[name] / speed["greedy"], 2,
                        *[sign_] * bool(sign_)]
            chain, look, ours, _ = projected[task]
            found.append([task, models, over("speculative"),
                          over("lookahead"), over("ouroboros"),
                          [chain, 2], [look, 2], [ours, 2]])
    return [make_table(
        "Table 2: the paper's ratios over greedy beside projected ones",
        ["task", "the paper's models", "speculative", "lookahead", "Ouroboros",
         "ours: speculative", "lookahead", "Ouroboros"], found,
        [f"Ours: 34B and 7B, rows free, drafts of {level} agreement. The "
         "paper's CNN/DM stands beside Spec-Bench's summarization. The "
         "paper's speeds hold all costs, ours those of passes alone."])]


def uncounted(sources):
    """What ouroboros_agreement.py has not counted or timed yet, in words."""
    own, times = Counts(sources["agreement"]), sources["pass_times"]
    missing = []
    levels = [level for level in sorted(LEVELS) if level not in own.levels()]
    if levels:
        missing.append("agreement of " + ", ".join(levels))
    if not ablation_steps(own, "HumanEval"):
        missing.append("Table 3's steps")
    if not warm_orders(own):
        missing.append("Table 4")
    missing += [name for name, of in (
        ("Figure 5", suffix_counts(own)), ("Figure 6", sweep_counts(own)))
        if not of]
    if len(timed_pairs(times)) < len(PAIRS):
        missing.append("pass times of the shape of 34 B")
    if not larger_table(sources["agreement"], "SmolLM2-135M"):
        missing.append("SmolLM2-135M")
    return missing


def agreement_tables(sources):
    counts, times = sources["agreement"], sources["pass_times"]
    paper = sources["published"]["ouroboros"]
    own = Counts(counts)
    if not own.levels():
        return []
    tables = [make_table(
        "Drafts of chosen agreement: accept length",
        ["task", "agreement", "greedy", "speculative, gamma 12", "gamma 20",
         "lookahead", "Ouroboros", "warm start", "Ouroboros / gamma 12",
         "Ouroboros / lookahead", "draft passes, gamma 12", "Ouroboros",
         "draft rows, gamma 12", "Ouroboros", "target rows, Ouroboros"],
        lengths(own), [
            "Target: `tools/demo/target`; draft: its own weights with Gaussian "
            "noise in the layers' matrices, whose strength is found by "
            "bisection for each task and agreement. Agreement: how often the "
            "draft's most likely token is the target's, on the target's greedy "
            f"outputs for the same prompts. {PROMPTS} prompts of each set, "
            f"evenly spread, {TOKENS} tokens each at most; every output was "
            "compared with plain decoding's and is the same. Settings as "
            "published (gamma 12, W 20, beta 8, K 3; lookahead W 15, N 5, G "
            "15). Passes and rows are per round. The small target repeats "
            "itself more than a large one does, which favours all that copies. "
            "`tests/lab/ouroboros_agreement.py --bench "
            "build/release/bin/bench_agreement --data DATA` counts again.",
            *verdict(own, times),
            *(below_premise(own, times)
              if "34B, 7B" in timed_pairs(times) else [])])]
    tables += larger_table(counts, "SmolLM2-135M")
    tables += long_table(own, times)
    tables.append(matches_table(own))
    if times:
        tables += paper_table(own, times, paper)
        tables += speed_tables(own, times)
    tables += ablation_table(own, times, paper)
    tables += warm_table(own, times, paper)
    tables += sweep_tables(own)
    return tables
