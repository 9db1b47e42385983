"""Times of a library's matrix products beside ours: PyTorch's linear in bf16
(cuBLASLt), the 8B shape's matrices by rows, and the bf16 matrix rate.

Prints a JSON object for each, as it goes. --rate: the matrix rate alone; --cpu:
tiny matrices on the CPU, to try the script.
"""
import json
import statistics
import sys
import time

import torch

MATRICES = {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28672, 4096),
            "down": (4096, 14336), "head": (128256, 4096)}
ROWS = (1, 8, 16, 64, 65, 128, 256, 320, 2048)
ON_CPU = "--cpu" in sys.argv
# More weights than the L2 holds, so that each product reads them from memory.
ROTATED_BYTES = 1 if ON_CPU else 400 << 20


def say(**line):
    print(json.dumps(line), flush=True)


def seconds(work, repeats=15, warm_up=3):
    times = []
    for i in range(repeats + warm_up):
        if ON_CPU:
            start = time.perf_counter()
            work()
            taken = time.perf_counter() - start
        else:
            begin, end = (torch.cuda.Event(enable_timing=True)
                          for _ in range(2))
            begin.record()
            work()
            end.record()
            end.synchronize()
            taken = begin.elapsed_time(end) * 1e-3
        if i >= warm_up:
            times.append(taken)
    return statistics.median(times)


def random(*shape):
    return torch.randn(*shape, device="cpu" if ON_CPU else "cuda",
                       dtype=torch.bfloat16)


def matrix_rate(n):
    a, b = random(n, n), random(n, n)
    say(id="matrix", tflop_s=2e-12 * n**3 / seconds(lambda: a @ b))


def products(name, features, k):
    copies = -(-ROTATED_BYTES // (2 * features * k))
    weights = [random(features, k) for _ in range(copies)]
    for rows in ROWS:
        x = random(rows, k)

        def all_of_them():
            for w in weights:
                torch.nn.functional.linear(x, w)

        # One graph of all copies: launches of the host would count else.
        work = all_of_them
        if not ON_CPU:
            all_of_them()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                all_of_them()
            work = graph.replay
        say(id=f"cublas.{name}.{rows}", us=seconds(work) / copies * 1e6)


def main():
    with torch.inference_mode():
        matrix_rate(64 if ON_CPU else 8192)
        if "--rate" in sys.argv:
            return
        for name, (features, k) in MATRICES.items():
            scale = 64 if ON_CPU else 1
            products(name, features // scale, k // scale)


if __name__ == "__main__":
    main()
