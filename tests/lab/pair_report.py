#!/usr/bin/env python3
"""A target and its small sibling on one machine: what was measured, what the
balance of a machine says of it, and what it says of other machines.

  pair_report.py --collect FOLDER   # pair.json from the files of these commands
  pair_report.py --write            # the tables of README.md and docs/
  pair_report.py --check            # that they are what pair.json gives

The files, with TARGET and DRAFT as GGUF files and TASK.jsonl as prompts:

  foretoken bench engine --model TARGET --contexts 0 --json > engine_target.json
  foretoken bench engine --model DRAFT --contexts 0 --draft-weights auto \\
    --draft-vocabulary 32768 --json > engine_draft.json
  foretoken bench modes --model TARGET --draft-model DRAFT --prompts TASK.jsonl \\
    --requests 1 --pairs 10 --max-tokens 160 --temperature T --json \\
    --modes off,auto,draft_model,ouroboros > TASK_T.json
  ... without --draft-model, --modes off,auto > TASK_T_alone.json
  ... --modes off,draft_model:gamma=2,draft_model:gamma=5 --pairs 4 > TASK_chains.json

A pass of `rows` rows reads all weights and multiplies every one with every row;
memory and arithmetic overlap in part: its time is the root of the sum of the
squares of both. The two shares of the peaks that are reached follow from the
passes of `bench engine` alone. The rounds of the chains are predicted from
these, and from nothing of `bench modes` but how many tokens were accepted.
"""
import argparse
import json
import math
import pathlib
import sys

RESULTS = pathlib.Path(__file__).parent / "results"
ROOT = pathlib.Path(__file__).parents[2]
TASKS = {"code": "code from a description (MBPP)",
         "completion": "a function to complete (HumanEval)",
         "chat": "chat (Spec-Bench)"}
TEMPERATURES = ("0", "0.8")
# Read GB/s, int8 multiply-adds in 1e12 a second: round figures of such machines,
# not measured here.
MACHINES = {"2 cores": (30, 0.5), "4 cores": (50, 1.0), "8 cores": (80, 2.0),
            "16 cores": (120, 4.0), "32 cores": (200, 8.0),
            "64 cores": (350, 16.0), "one GPU (H100)": (3350, 990.0)}
CHAINS = range(1, 13)


# Passes ----------------------------------------------------------------------

def pass_ms(model, rows, read_gb_s, multiply_adds, shares):
    memory = model["bytes"] / read_gb_s / 1e6 / shares[0]
    arithmetic = rows * model["weights"] / multiply_adds * 1e3 / shares[1]
    return math.hypot(memory, arithmetic)


def fit(engine):
    """The shares of both peaks that explain the passes of both models best."""
    def fault(shares):
        return sum(math.log(pass_ms(model, rows, model["read_gb_s"],
                                    model["multiply_adds_per_s"], shares) / ms)
                   ** 2 for model in engine.values()
                   for rows, ms in model["passes"])
    grid = [n / 100 for n in range(30, 101)]
    return min(((a, b) for a in grid for b in grid), key=fault)


# Rounds ----------------------------------------------------------------------

def accepted(chance, gamma):
    """Tokens of a round whose drafts are right with this chance each."""
    return sum(chance ** n for n in range(gamma + 1))


def chance_of(length, gamma):
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if accepted(middle, gamma) < length:
            low = middle
        else:
            high = middle
    return low


def gain(engine, read_gb_s, multiply_adds, shares, gamma, length):
    """Over plain decoding, of chains of `gamma` of which rounds of `length`
    tokens come out."""
    def ms(name, rows):
        return pass_ms(engine[name], rows, read_gb_s, multiply_adds, shares)
    return length * ms("target", 1) / (
        ms("target", gamma + 1) + gamma * ms("draft", 1))


def predicted(report, chain):
    target = report["engine"]["target"]
    return gain(report["engine"], target["read_gb_s"],
                target["multiply_adds_per_s"], fit(report["engine"]),
                chain["gamma"], chain["accept_length"])


def best_gain(report, machine, chance):
    read, multiply_adds = MACHINES[machine]
    shares = fit(report["engine"])
    return max((gain(report["engine"], read, multiply_adds * 1e12, shares,
                     gamma, accepted(chance, gamma)), gamma)
               for gamma in CHAINS)


# Tables ----------------------------------------------------------------------

def ratio(run):
    if run is None:
        return "–"
    return f"{run['ratio']:.2f} ({run['low']:.2f} to {run['high']:.2f})"


def greedy_table(report):
    return measured_table(report, TEMPERATURES[:1])


def measured_table(report, temperatures=TEMPERATURES):
    columns = ("auto", "draft_model", "ouroboros", "alone")
    lines = ["| prompts | temperature | `off`, tokens/s | `auto` | `draft_model` "
             "| `ouroboros` | `auto` without a draft model |",
             "|---|---|---|---|---|---|---|"]
    for task, name in TASKS.items():
        for temperature in temperatures:
            cell = report["modes"].get(f"{task}_{temperature}")
            if cell is None:
                continue
            cells = " | ".join(ratio(cell.get(column)) for column in columns)
            lines.append(f"| {name} | {temperature} | "
                         f"{cell['off_tokens_per_s']:.1f} | {cells} |")
    return "\n".join(lines)


def points_table(report):
    lines = ["| prompts | chain | accepted, tokens a round | predicted "
             "| measured |", "|---|---|---|---|---|"]
    for chain in report["chains"]:
        lines.append(f"| {TASKS[chain['task']]} | `gamma={chain['gamma']}` | "
                     f"{chain['accept_length']:.2f} | "
                     f"{predicted(report, chain):.2f} | {chain['ratio']:.2f} |")
    return "\n".join(lines)


def machines_table(report):
    longest = {}
    for chain in report["chains"]:
        best = longest.get(chain["task"])
        if best is None or chain["gamma"] > best["gamma"]:
            longest[chain["task"]] = chain
    chances = {task: chance_of(chain["accept_length"], chain["gamma"])
               for task, chain in longest.items()}
    head = " | ".join(f"{TASKS[task]}, {chance:.0%} right"
                      for task, chance in chances.items())
    lines = [f"| machine | reads, GB/s | int8 multiply-adds, 1e12/s | {head} |",
             "|---|---|---|" + "---|" * len(chances)]
    for machine, (read, multiply_adds) in MACHINES.items():
        cells = []
        for chance in chances.values():
            value, gamma = best_gain(report, machine, chance)
            cells.append(f"{value:.1f} (gamma {gamma})")
        lines.append(f"| {machine} | {read} | {multiply_adds:g} | "
                     f"{' | '.join(cells)} |")
    return "\n".join(lines)


TABLES = {("README.md", "pair"): greedy_table,
          ("docs/results.md", "pair"): measured_table,
          ("docs/auto.md", "points"): points_table,
          ("docs/auto.md", "machines"): machines_table}


def parts(text, name):
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(begin, 1)
    table, after = rest.split(end, 1)
    return before + begin, table, end + after


def faults(report, root=ROOT):
    found = []
    for (page, name), table in TABLES.items():
        text = (root / page).read_text(encoding="utf-8")
        if parts(text, name)[1] != table(report) + "\n":
            found.append(f"{page}: its table {name} is not what pair.json "
                         "gives")
    return found


def write(report):
    for (page, name), table in TABLES.items():
        path = ROOT / page
        before, _, after = parts(path.read_text(encoding="utf-8"), name)
        path.write_text(before + table(report) + "\n" + after,
                        encoding="utf-8")


# Collecting ------------------------------------------------------------------

def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def model_of(engine, multiply_adds):
    read_gb_s = engine["read_bandwidth_gb_s"]
    passes = [[one["rows"], round(one["ms"], 2)] for one in engine["passes"]]
    return {"bytes": round(engine["bandwidth_share"] * passes[0][1] * 1e6 *
                           read_gb_s),
            "weights": round(engine["product_ms_per_row"] / 1e3 *
                             multiply_adds),
            "read_gb_s": round(read_gb_s, 2),
            "multiply_adds_per_s": round(multiply_adds), "passes": passes}


def run_of(modes, mode):
    for run in modes["runs"]:
        if run["mode"] == mode:
            return {"ratio": run["decode_ratio_to_off"],
                    "low": run["decode_ratio_low"],
                    "high": run["decode_ratio_high"],
                    "accept_length": run["accept_length"],
                    "pairs": run["pairs"]}
    return None


def collect(folder):
    report = {"engine": {}, "modes": {}, "chains": []}
    balance = load(folder / "code_0.json")["machine"]
    for name in ("target", "draft"):
        report["engine"][name] = model_of(load(folder / f"engine_{name}.json"),
                                          balance["int8_multiply_adds_per_s"])
    for task in TASKS:
        for temperature in TEMPERATURES:
            path = folder / f"{task}_{temperature}.json"
            if not path.exists():
                continue
            modes = load(path)
            cell = {mode: run_of(modes, mode)
                    for mode in ("auto", "draft_model", "ouroboros")}
            cell["off_tokens_per_s"] = next(
                run["decode_tokens_per_s"] for run in modes["runs"]
                if run["mode"] == "off")
            alone = folder / f"{task}_{temperature}_alone.json"
            if alone.exists():
                cell["alone"] = run_of(load(alone), "auto")
            report["modes"][f"{task}_{temperature}"] = cell
        path = folder / f"{task}_chains.json"
        if not path.exists():
            continue
        for run in load(path)["runs"]:
            if "gamma=" not in run["mode"]:
                continue
            report["chains"].append(
                {"task": task, "gamma": int(run["mode"].split("gamma=")[1]),
                 "accept_length": run["accept_length"],
                 "ratio": run["decode_ratio_to_off"]})
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collect", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    path = RESULTS / "pair.json"
    if options.collect is not None:
        path.write_text(json.dumps(collect(options.collect), indent=1) + "\n",
                        encoding="utf-8")
    report = load(path)
    if options.write:
        write(report)
    if options.check:
        found = faults(report)
        print("\n".join(found) or "docs are what pair.json gives")
        return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
