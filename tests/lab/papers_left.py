"""What the comparison with the papers does not have, for papers.md."""
from papers_agreement import uncounted
from papers_lookups import IDLE_LOAD, busy
from speedup_report import SETTINGS

OUTSIDE = "9e81980a19ec"


def not_counted(sources):
    missing = uncounted(sources)
    return f" Not counted or timed: {'; '.join(missing)}." if missing else ""


def speed(sources):
    """What speedup.json has in windows, in part, or not."""
    runs = sources["speedup"]
    windows = [key for key in SETTINGS if key in runs and
               runs[key].get("window") and not runs[key]["turns_per_category"]]
    parts = [f"{key} ({runs[key]['variants']['auto']['mean']['questions']} "
             "questions)" for key in SETTINGS
             if key in runs and runs[key]["turns_per_category"]]
    missing = [key for key in SETTINGS if key not in runs]
    return ("Wall-clock speed on whole outputs of all of Spec-Bench" + "".join(
        f"; {what}: {', '.join(keys)}" for what, keys in (
            ("of all turns, but in windows of their outputs", windows),
            ("of part of the turns", parts), ("not measured", missing))
        if keys) + ". `speedup_report.py` measures them.")


def kept_kv(sources):
    pairs = sources["draft_kv"]["pairs"].values()
    loaded = sum(pair["load"] > IDLE_LOAD for pair in pairs)
    return ("Draft time with the chain's KV kept between passes, on a GPU, and "
            f"on an idle machine for {loaded} of the {len(pairs)} tables of "
            "draft_kv.md; its rows are exact.")


def left(sources):
    runs = sources["crest"].values()
    outside = sum(run.get("made", {}).get("commit") == OUTSIDE for run in runs)
    unmade = sum("made" not in run for run in runs)
    measured = [
        speed(sources),
        "N-Gram-Trie: Table 1 on TriviaQA, HAGRID and other models, and "
        "Table 6 on an idle machine.",
        "Ouroboros with drafts of chosen agreement: speed by the clock (ours "
        "is projected), outputs of 512 tokens at more than one agreement, a "
        "target larger than the demo's in all tables, and pass times on a "
        "quiet machine and on a GPU." + not_counted(sources),
        kept_kv(sources) + " The draft rows and speeds of ouroboros.md are of "
        "commits that compute the chain again.",
        "CREST: single lengths and all n up to m with every n-gram for code." +
        (" Times of look-ups through PostgreSQL on an idle machine."
         if busy(sources["lookups"]) else ""),
        "Figures 6 and 7 of CREST at the paper's size (whole ShareGPT, The "
        "Stack), and REST on the leaderboard's store.",
        f"Commit and machine of {unmade} of the {len(runs)} points of "
        f"crest_runs.json; {outside} of the others are of {OUTSIDE}, a commit "
        "outside this history.",
        "The papers' numbers marked † against the papers themselves, and those "
        "that are not available."]
    built = [
        "JSON of `ouroboros_report.py`: its tables are read from ouroboros.md, "
        "and `papers_report.py --all` measures all of them again."]
    return {"title": "What is left", "tables": [], "text": [
        "Not measured, or not checked:",
        "\n".join(f"- {item}" for item in measured), "Not built:",
        "\n".join(f"- {item}" for item in built)]}
