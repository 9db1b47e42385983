#!/usr/bin/env python3
"""What tools/gpu_check is expected to measure, line by line, worked out before
a GPU was seen, and what is wanted.

    tests/gpu/predictions.py             the table, as predictions.md has it
    tests/gpu/predictions.py --check     fails if predictions.md is another one
    tests/gpu/predictions.py --write     writes it

A prediction is arithmetic over two ceilings of the GPU, a copy's bandwidth and
the bf16 matrix rate of a library's large product, and over the assumptions
below. A measurement that misses one says which assumption was wrong.
"""
import pathlib
import sys

# Measured by others on such machines: bytes/s of a device-to-device copy, read
# and write counted, and FLOP/s of an 8192^3 bf16 product on random data.
CEILINGS = {"H100": (3.0e12, 798e12), "H200": (4.3e12, 788e12)}

# Assumptions.
STREAM_SHARE = 0.92   # of the copy bandwidth, by a kernel that reads weights
MMA_SHARE = 0.60      # of the matrix rate, by mma.sync
HIDDEN = 0.75         # of the shorter of stream and products runs under the other
L2_RATE = 5.5e12      # bytes/s, partial sums that fit into half of the L2
L2_BYTES = 25e6
GAP = 2.2e-6          # seconds at each border of two kernels, with overlap
GAP_ALONE = 4.2e-6    # without
LAUNCH = 2.5e-6       # of the host, a kernel outside a graph
PASS = 40e-6          # copies in and out, and the wait
KERNELS_OF_LAYER = 9
KERNELS_OF_END = 5
ATTENTION_SHARE = 0.7  # of the copy bandwidth, by a long context's KV
SAMPLER_RATE = 100e9   # bytes/s of one thread block over logits in L2
SAMPLER_PASSES = 12

# Tiles of rows that a product is cut into.
TILES = (8, 16, 32, 64, 72, 128, 256)


class Shape:
    """Features, K, groups of K of each product of a layer, and of the head."""

    def __init__(self, d, heads, kv_heads, head_dim, d_ff, layers, vocab):
        self.layers, self.vocab = layers, vocab
        self.kv_bytes = 2 * 2 * layers * kv_heads * head_dim
        q, kv = heads * head_dim, kv_heads * head_dim
        self.products = {"qkv": (q + 2 * kv, d), "o": (d, q),
                         "gate_up": (2 * d_ff, d), "down": (d, d_ff)}
        self.head = (vocab, d)

    def groups(self, name):
        if name == "gate_up":
            return 1
        features, k = self.products[name]
        return max(1, min(264 // (features // 128), 8, k // 64 // 4))

    def layer_parameters(self):
        return sum(n * k for n, k in self.products.values())

    def parameters(self):
        return self.layers * self.layer_parameters() + self.head[0] * self.head[1]


SHAPES = {"8b": Shape(4096, 32, 8, 128, 14336, 32, 128256),
          "1b": Shape(2048, 32, 8, 64, 8192, 16, 128256)}


def tiled(rows):
    if rows <= 256:
        return next(tile for tile in TILES if tile >= rows)
    whole = rows // 256 * 256
    rest = rows - whole
    return whole + (0 if rest == 0 else 128 if rest <= 128 else 256)


def product_s(gpu, features, k, rows):
    """One product: its weights' bytes and its multiplications, each partly
    under the other."""
    copy, matrix = CEILINGS[gpu]
    stream = 2.0 * features * k / (STREAM_SHARE * copy)
    products = 2.0 * features * k * tiled(rows) / (MMA_SHARE * matrix)
    return max(stream, products) + (1 - HIDDEN) * min(stream, products)


def partials_s(gpu, shape, rows):
    """Partial sums of a layer's grouped products, written and read."""
    total = 0.0
    for name, (features, _) in shape.products.items():
        if shape.groups(name) > 1:
            size = 4.0 * shape.groups(name) * rows * features
            rate = L2_RATE if size <= L2_BYTES else CEILINGS[gpu][0]
            total += 2 * size / rate
    return total


def pass_s(gpu, shape, rows, context=512, outputs=None, overlap=True,
           graphs=True, sessions=1):
    outputs = rows if outputs is None else outputs
    layer = sum(product_s(gpu, n, k, rows) for n, k in shape.products.values())
    layer += partials_s(gpu, shape, rows)
    kernels = shape.layers * KERNELS_OF_LAYER + KERNELS_OF_END
    busy = shape.layers * layer + product_s(gpu, *shape.head, outputs)
    busy += sessions * context * shape.kv_bytes / (
        ATTENTION_SHARE * CEILINGS[gpu][0])
    busy += kernels * (GAP if overlap else GAP_ALONE)
    return max(busy, 0.0 if graphs else kernels * LAUNCH) + PASS


def sampler_s(shape):
    return SAMPLER_PASSES * 4.0 * shape.vocab / SAMPLER_RATE


def ratio(gpu, name, rows, **more):
    shape = SHAPES[name]
    return pass_s(gpu, shape, rows, **more) / pass_s(gpu, shape, 1)


def share(gpu, name):
    shape = SHAPES[name]
    return 2.0 * shape.parameters() / pass_s(gpu, shape, 1) / CEILINGS[gpu][0]


def prefill_s(gpu, shape, rows=2048):
    return pass_s(gpu, shape, rows, context=0, outputs=1)


def prefill_share(gpu):
    """Of the matrix rate, by the layers' products of a prompt."""
    shape = SHAPES["8b"]
    flop = 2.0 * shape.layers * shape.layer_parameters() * 2048
    return flop / prefill_s(gpu, shape) / CEILINGS[gpu][1]


class Line:
    """`id`: of the measurement; `prediction(gpu)`: a number, or None where
    nothing is predicted; `wanted`: (at least or at most, number), or text."""

    def __init__(self, id, what, unit, prediction, wanted=None):
        self.id, self.what, self.unit = id, what, unit
        self.prediction, self.wanted = prediction, wanted


def at_most(number):
    return ("<=", number)


def at_least(number):
    return (">=", number)


def passed(line, value):
    if line.wanted is None or isinstance(line.wanted, str):
        return None
    relation, number = line.wanted
    return value <= number if relation == "<=" else value >= number


def nothing(_):
    return None


def lines():
    s8, s1 = SHAPES["8b"], SHAPES["1b"]
    yield Line("wgmma", "bits of wgmma against mma", "", nothing, "equal")
    yield Line("8b.copy", "copy bandwidth", "GB/s",
               lambda g: CEILINGS[g][0] * 1e-9)
    yield Line("matrix", "bf16 matrix rate, 8192^3, PyTorch", "TFLOP/s",
               lambda g: CEILINGS[g][1] * 1e-12)
    yield Line("8b.rows.1", "8B: one row, context 512", "ms",
               lambda g: pass_s(g, s8, 1) * 1e3)
    yield Line("8b.tok_s", "8B: plain decoding", "tok/s",
               lambda g: 1 / pass_s(g, s8, 1))
    yield Line("8b.share", "8B: one row, share of copy bandwidth", "",
               lambda g: share(g, "8b"), at_least(0.75))
    for rows, most in ((8, None), (16, 1.05), (64, 1.15), (65, 1.15),
                       (128, None), (256, None), (320, None)):
        yield Line(f"8b.ratio.{rows}", f"8B: {rows} rows over one", "",
                   lambda g, r=rows: ratio(g, "8b", r),
                   None if most is None else at_most(most))
    yield Line("8b.ratio.32x8", "8B: 32 sessions of 8 rows over one", "",
               lambda g: ratio(g, "8b", 256, sessions=32), at_most(2.5))
    yield Line("8b.prefill.2048", "8B: prompt of 2,048", "tok/s",
               lambda g: 2048 / prefill_s(g, s8))
    yield Line("8b.prefill.share", "8B: prompt, share of the matrix rate", "",
               prefill_share, at_least(0.5))
    for name, (features, k) in {**s8.products, "head": s8.head}.items():
        for rows in (1, 64, 256):
            yield Line(f"kernel.{name}.{rows}",
                       f"kernel {name} {features} x {k}, {rows} rows", "us",
                       lambda g, n=features, k=k, r=rows:
                       product_s(g, n, k, r) * 1e6)
            yield Line(f"cublas.{name}.{rows}",
                       f"  the same over cuBLASLt's time", "", nothing)
    yield Line("kernel.attention.1", "kernels of attention, one row, a layer",
               "us", lambda g: 2 * GAP_ALONE * 1e6)
    for name, what, more in (
            ("no_overlap", "no overlap", {"overlap": False}),
            ("no_graphs", "no graphs", {"graphs": False}),
            ("neither", "neither", {"overlap": False, "graphs": False})):
        for rows in (1, 64):
            yield Line(f"8b.{name}.{rows}",
                       f"8B: {rows} rows, {what}, over both", "",
                       lambda g, r=rows, m=more: pass_s(g, s8, r, **m)
                       / pass_s(g, s8, r))
    for rows in (1, 64):
        yield Line(f"8b.long.{rows}",
                   f"8B: {rows} rows at context 8,000 over 512", "",
                   lambda g, r=rows: pass_s(g, s8, r, context=8000)
                   / pass_s(g, s8, r))
    yield Line("8b.sampled.64", "8B: 64 rows drawn over arg max", "",
               lambda g: 1 + sampler_s(s8) / pass_s(g, s8, 64))
    yield Line("1b.rows.1", "1B: one row, context 512", "ms",
               lambda g: pass_s(g, s1, 1) * 1e3)
    yield Line("1b.share", "1B: one row, share of copy bandwidth", "",
               lambda g: share(g, "1b"), at_least(0.55))
    yield Line("tests", "gpu_tests: bits, tokens, memory", "failed",
               lambda g: 0, at_most(0))
    # One forward of 32 layers in some 25 PyTorch kernels each, bound by the
    # host; compiled: the same weights by a library's kernels.
    yield Line("hf.eager", "8B: Hugging Face eager over ours", "",
               lambda g: 22e-3 / pass_s(g, s8, 1), at_least(1.5))
    yield Line("hf.compiled", "8B: Hugging Face compiled over ours", "",
               lambda g: (2.0 * s8.parameters() / (0.8 * CEILINGS[g][0]) + 0.4e-3)
               / pass_s(g, s8, 1), at_least(1.0))
    yield Line("memcheck", "memcheck", "failed", lambda g: 0, at_most(0))
    yield Line("racecheck", "racecheck", "failed", lambda g: 0, at_most(0))


def number(value):
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def wanted(line):
    if line.wanted is None:
        return ""
    if isinstance(line.wanted, str):
        return line.wanted
    return f"{line.wanted[0]} {number(line.wanted[1])}"


def markdown():
    rows = ["# Predictions of tools/gpu_check", "",
            "Written by `tests/gpu/predictions.py --write`, which has the "
            "arithmetic; made before a GPU had run the engine. `foretoken-lab replay` "
            "has no line: its acceptance comes from recordings, its times from "
            "the lines below.", "",
            "| line | unit | " + " | ".join(CEILINGS) + " | wanted |",
            "|---|---|" + "---|" * len(CEILINGS) + "---|"]
    for line in lines():
        cells = [line.what.strip(), line.unit,
                 *(number(line.prediction(g)) for g in CEILINGS), wanted(line)]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def main():
    path = pathlib.Path(__file__).with_suffix(".md")
    if "--write" in sys.argv:
        path.write_text(markdown())
    elif "--check" in sys.argv:
        if path.read_text() != markdown():
            print(f"{path} is not what predictions.py gives: --write")
            return 1
    else:
        print(markdown(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
