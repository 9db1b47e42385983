"""Look-ups in CREST's datastores through PostgreSQL, from crest_lookups.json."""
from crest_lookups import INDEXES, ROUNDS, STATEMENTS, STATES
from report_table import make_table

# The script, its client and the server's process wait for each other.
IDLE_LOAD = 1.5
NAMES = {"btree": "B-tree", "hash": "hash"}
DROPPED = {"drop_caches": "the whole page cache was dropped (`drop_caches`)",
           "posix_fadvise": "the datastore's files were taken out of the page "
                            "cache (`posix_fadvise`)"}


def lookups(runs):
    """The tables; none while nothing is measured."""
    if not any("/size" in key for key in runs):
        return [make_table("Look-ups through PostgreSQL", [], [], [
            "Not measured: `tests/lab/crest_lookups.py` does it."])]
    return [latencies(runs), sizes(runs), plans(runs)]


def latencies(runs):
    rows = []
    for state in STATES:
        for keys in STATEMENTS:
            base = runs.get(f"btree/{state}/{keys}")
            for index in INDEXES:
                run = runs.get(f"{index}/{state}/{keys}")
                if not run:
                    continue
                times = [run[f"p{p}_us"] for p in (50, 95, 99)]
                rows.append([
                    state, NAMES[index], str(keys), [run["statements"], 0],
                    *[[time, 0] for time in times],
                    *[[time / keys, 1] for time in times],
                    [times[0] / base["p50_us"], 2] if base else ""])
    return make_table(
        "Look-ups through PostgreSQL: microseconds",
        ["state", "index", "n-grams per statement", "statements", "p50", "p95",
         "p99", "p50 per n-gram", "p95 per n-gram", "p99 per n-gram",
         "p50 / B-tree's"], rows, [explained(runs)])


def explained(runs):
    def first(state, field):
        return next((run[field] for key, run in runs.items()
                     if f"/{state}/" in key and field in run), None)
    size = runs["btree/size"]
    text = [
        "From the call of the service's fetcher to its rows, over a Unix "
        f"socket; keys of stored n-grams, at random; {size['entries']:,} "
        "n-grams of the chat corpora. Before each look-up the service's cache, "
        "which is not in these times, answers what it holds. The indexes take "
        f"turns: {ROUNDS} rounds, or for *cold* one statement after each "
        "restart."]
    warm, tenth = (first(s, "shared_buffers") for s in ("warm", "tenth"))
    dropped = first("cold", "dropped")
    if warm:
        text.append(f"*warm*: shared_buffers of {warm / 1e6:.0f} MB hold all.")
    if dropped:
        text.append("*cold*: the first statement of a restarted server, after "
                    f"{DROPPED[dropped]}.")
    if tenth:
        text.append(
            f"*tenth*: shared_buffers of {tenth / 1e6:.1f} MB, a tenth of the "
            "datastore, filled by earlier statements; its files left the page "
            "cache before each statement, so the kernel holds only what the "
            "statement itself has read. The disk is a virtual machine's: what "
            "the host keeps in memory is not bounded.")
    text.append("The p99 of fewer than 100 statements is the slowest one.")
    low, high = loads(runs)
    text.append(f"The machine had other work (load {low:g} to {high:g}): the "
                "ratios of the indexes say more than the times."
                if busy(runs) else f"Load of the machine: {low:g} to {high:g}.")
    return " ".join(text)


def loads(runs):
    found = [run["made"]["load"] for key, run in runs.items()
             if key.split("/")[1] in STATES]
    return (min(found), max(found)) if found else (0, 0)


def busy(runs):
    """Whether anything but the script and its server ran beside them."""
    return loads(runs)[1] > IDLE_LOAD


def sizes(runs):
    rows = []
    for index in INDEXES:
        run = runs.get(f"{index}/size")
        if run:
            rows.append([
                NAMES[index], [run["entries"], 0],
                *[[run[f"{part}_bytes"] / 1e6, 2] for part in
                  ("snapshot", "total", "table", "index")],
                [run["total_bytes"] / run["snapshot_bytes"], 2]])
    return make_table(
        "The datastore of these look-ups, MB",
        ["index", "n-grams", "snapshot", "pg_total_relation_size", "table",
         "index alone", "relation / snapshot"], rows,
        [f"n <= {runs['btree/size']['max_n']}, REST's cut, every n-gram that "
         "occurs twice."])


def plans(runs):
    rows = []
    for keys in STATEMENTS:
        row = [str(keys)]
        for index in INDEXES:
            run = runs.get(f"{index}/plans")
            row += [run[str(keys)][when] if run else "-"
                    for when in ("first", "later")]
        rows.append(row)
    return make_table(
        "How the server reads them",
        ["n-grams per statement", "B-tree, first statement", "later ones",
         "hash, first statement", "later ones"], rows,
        ["By EXPLAIN of the service's prepared statement: its first execution "
         "on a connection, and one after ten of the same size."])
