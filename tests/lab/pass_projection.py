"""Time of counted passes from the measured time of a pass by its rows."""
import bisect

# The measured pairs: target, draft.
PAIRS = {"7B, 68M": ("7B", "68M"), "34B, 7B": ("34B", "7B")}


def rising(ms):
    """A pass takes no longer than one of more rows: a time that says so was
    disturbed."""
    return [min(ms[i:]) for i in range(len(ms))]


def pass_ms(times, rows, free=False):
    """Of one pass; between two measured sizes, and beyond the last, on a
    straight line. `free`: a pass takes as long as one of one row."""
    sizes, ms = times["rows"], rising(times["ms"])
    if free:
        return ms[0]
    at = min(max(bisect.bisect_right(sizes, rows) - 1, 0), len(sizes) - 2)
    slope = (ms[at + 1] - ms[at]) / (sizes[at + 1] - sizes[at])
    return ms[at] + (rows - sizes[at]) * slope


def passes_ms(times, bins, free=False):
    """Of [first rows of the bin, passes, rows] as bench_agreement has them: no
    measured size lies within a bin, so that the mean stands for all of it."""
    return sum(passes * pass_ms(times, rows / passes, free)
               for _, passes, rows in bins)


def over_greedy(times, pair, counts, free=False):
    """Speed over that of one token for each pass of one row."""
    target, draft = (times[name] for name in PAIRS[pair])
    spent = (passes_ms(target, counts["target_bins"], free) +
             passes_ms(draft, counts["draft_bins"], free))
    return counts["tokens"] * pass_ms(target, 1) / spent
