"""Trains the target, or distils the draft, on windows of 1,024 tokens.

Resumable: run the same command again after a stop. Ends at --tokens or after
--minutes of training, whichever is first; the learning rate follows.
With --teacher the loss is the divergence from the teacher's distribution, on
the text and on what the teacher itself wrote (sample.py).
"""
import argparse
import os
import time

import numpy as np
import torch
import torch.distributed as dist

import model as models
from loss import Loss
from optimizer import make_optimizers, set_progress, sum_over_processes

WINDOW = 1024


class Source:
    """Windows of one file in random order, each once an epoch."""

    def __init__(self, path, seed):
        self.ids = np.fromfile(path, dtype=np.uint16)
        self.seed = seed
        self.begins = None
        self.epoch = -1

    def window(self, number):
        count = (len(self.ids) - 1) // WINDOW - 1
        epoch, at = divmod(number, count)
        if epoch != self.epoch:
            random = np.random.default_rng([self.seed, epoch])
            self.begins = (random.integers(WINDOW)
                           + WINDOW * random.permutation(count))
            self.epoch = epoch
        begin = self.begins[at]
        return self.ids[begin:begin + WINDOW + 1].astype(np.int64)


class Mixture:
    """Windows of several sources, each with its share; goes on from `drawn`."""

    def __init__(self, sources, seed, drawn):
        self.sources = [Source(path, seed * 1_000 + i)
                        for i, (path, _) in enumerate(sources)]
        shares = np.array([s for _, s in sources])
        self.shares = shares / shares.sum()
        self.drawn = drawn or [0] * len(sources)

    def batch(self, size):
        """Always the source that is furthest behind its share."""
        rows = []
        for _ in range(size):
            total = sum(self.drawn) + 1
            behind = self.shares * total - np.array(self.drawn)
            source = int(behind.argmax())
            rows.append(self.sources[source].window(self.drawn[source]))
            self.drawn[source] += 1
        return torch.from_numpy(np.stack(rows))


def agreed(seconds):
    """The first process' clock: all must stop at the same step."""
    if not dist.is_initialized():
        return seconds
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.broadcast(value, 0)
    return value.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=["target", "draft"], required=True)
    parser.add_argument("--source", nargs=2, action="append", required=True,
                        metavar=("FILE", "SHARE"))
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--teacher", help="checkpoint of the target")
    parser.add_argument("--tokens", type=float, required=True)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    world = int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if world > 1 else 0
    torch.manual_seed(args.seed)

    shape = models.TARGET if args.role == "target" else models.DRAFT
    model = models.Llama(shape).to(args.device)
    teacher = None
    if args.teacher:
        teacher = models.load_model(args.teacher, args.device).eval()
        model.start_embedding_from(teacher)
    optimizers = make_optimizers(model)
    state = {"tokens": 0, "seconds": 0.0, "steps": 0, "drawn": None}
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint, map_location=args.device,
                           weights_only=True)
        model.load_state_dict(saved["model"])
        for o, s in zip(optimizers, saved["optimizers"]):
            o.load_state_dict(s)
        state = saved["state"]
        print(f"resumed at {state}", flush=True)
    sources = [(path, float(share)) for path, share in args.source]
    data = Mixture(sources, args.seed, state["drawn"])
    state["drawn"] = data.drawn
    print(f"{args.role}: {sum(p.numel() for p in model.parameters())} "
          f"parameters", flush=True)
    if args.compile:  # one graph for all layers
        models.Layer.forward = torch.compile(models.Layer.forward)
    loss_of = Loss(compiled=args.compile)

    mean, saved_at = None, time.monotonic()
    while True:
        progress = max(state["tokens"] / args.tokens,
                       state["seconds"] / (60 * args.minutes))
        if progress >= 1:
            break
        begin = time.monotonic()
        set_progress(optimizers, progress)
        ids = data.batch(args.batch)[rank::world].to(args.device)
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = loss_of(model, model.body, teacher, ids)
        loss.backward()
        if world > 1:
            gradients = [p.grad for p in model.parameters()]
            sum_over_processes(gradients)
            for g in gradients:
                g /= world
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for o in optimizers:
            o.step()
            o.zero_grad(set_to_none=True)
        value = loss.item()
        mean = value if mean is None else 0.97 * mean + 0.03 * value
        state["tokens"] += args.batch * WINDOW
        state["steps"] += 1
        state["seconds"] += agreed(time.monotonic() - begin)
        if rank == 0 and state["steps"] % 20 == 0:
            print(f"step {state['steps']} tokens {state['tokens']} "
                  f"loss {mean:.4f} progress {progress:.3f} "
                  f"tok/s {state['tokens'] / state['seconds']:.0f}",
                  flush=True)
        if rank == 0 and time.monotonic() - saved_at > 180:
            models.save_checkpoint(args.checkpoint, model, optimizers, state)
            saved_at = time.monotonic()
    if rank == 0:
        models.save_checkpoint(args.checkpoint, model, optimizers, state)
        print(f"done: {state}", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
