"""Interpolated Kneser-Ney 5-gram over the training tokens: the baseline.

Counts are sorted arrays: an n-gram of five 12-bit ids fits one 64-bit key.
Source: Chen and Goodman 1999, section 2.7 (one discount per order).
"""
import numpy as np

BITS = 12


def keys_of(ids, n):
    """The n-grams that end at positions n-1.., as integers."""
    keys = np.zeros(len(ids) - n + 1, dtype=np.uint64)
    for i in range(n):
        part = ids[i:len(ids) - n + 1 + i].astype(np.uint64)
        keys = (keys << np.uint64(BITS)) | part
    return keys


class Order:
    """Counts of one order, and per context its total and distinct followers."""

    def __init__(self, keys, counts):
        self.keys, self.counts = keys, counts
        ones, twos = (counts == 1).sum(), (counts == 2).sum()
        self.discount = ones / (ones + 2 * twos)
        contexts = keys >> np.uint64(BITS)
        self.contexts, start = np.unique(contexts, return_index=True)
        self.totals = np.add.reduceat(counts, start)
        self.followers = np.diff(np.append(start, len(keys)))

    def count(self, keys):
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.counts[at], 0)

    def interpolate(self, keys, lower):
        context = keys >> np.uint64(BITS)
        at = np.minimum(np.searchsorted(self.contexts, context),
                        len(self.contexts) - 1)
        found = self.contexts[at] == context
        total = np.where(found, self.totals[at], 1)
        backoff = self.discount * self.followers[at] / total
        p = np.maximum(self.count(keys) - self.discount, 0) / total
        return np.where(found, p + backoff * lower, lower)


class KneserNey:
    def __init__(self, ids, n=5, vocab=4096):
        self.n, self.vocab = n, vocab
        keys, counts = np.unique(keys_of(ids, n), return_counts=True)
        self.orders = [Order(keys, counts)]
        for order in range(n - 1, 0, -1):
            # Continuation counts: distinct preceding tokens.
            mask = np.uint64((1 << (BITS * order)) - 1)
            keys, counts = np.unique(keys & mask, return_counts=True)
            self.orders.append(Order(keys, counts))
        self.orders.reverse()

    def nats(self, ids):
        """Negative log-likelihood of ids[1:], each given up to n-1 tokens."""
        total = 0.0
        p = np.full(len(ids), 1.0 / self.vocab)
        for order in range(1, self.n + 1):
            if len(ids) >= order:
                p[order - 1:] = self.orders[order - 1].interpolate(
                    keys_of(ids, order), p[order - 1:])
        total = -np.log(p[1:]).sum()
        return total
