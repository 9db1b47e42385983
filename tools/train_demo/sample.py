"""Generates text with the target, on which the draft is distilled.

Continues random 64-token beginnings of the training text in batches, at
temperatures between 0.3 and 1; writes uint16 ids, id 0 before each text.
"""
import argparse
import time

import numpy as np
import torch

import model as models

PROMPT = 64


def continue_batch(model, prompts, length, temperatures):
    past = [models.Past() for _ in model.layers]
    out = [prompts]
    ids = prompts
    for step in range(length):
        offset = 0 if step == 0 else PROMPT + step - 1
        logits = model(ids, past, offset)[:, -1].float()
        ids = torch.multinomial(
            torch.softmax(logits / temperatures[:, None], dim=-1), 1)
        out.append(ids)
    return torch.cat(out, dim=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--source", nargs="+", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--tokens", type=float, required=True)
    parser.add_argument("--length", type=int, default=448)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    random = np.random.default_rng(args.seed)
    model = models.load_model(args.checkpoint, args.device).eval()
    arrays = [np.fromfile(p, dtype=np.uint16) for p in args.source]
    done, begin = 0, time.monotonic()
    with open(args.out, "wb") as out, torch.inference_mode():
        while done < args.tokens:
            prompts = []
            for _ in range(args.batch):
                ids = arrays[random.integers(len(arrays))]
                at = random.integers(0, len(ids) - PROMPT)
                prompts.append(ids[at:at + PROMPT].astype(np.int64))
            temperatures = torch.from_numpy(
                random.uniform(0.3, 1.0, args.batch)).float().to(args.device)
            with torch.autocast(args.device, dtype=torch.bfloat16):
                texts = continue_batch(
                    model, torch.from_numpy(np.stack(prompts)).to(args.device),
                    args.length, temperatures)
            rows = texts.cpu().numpy().astype(np.uint16)
            np.concatenate([np.zeros((len(rows), 1), np.uint16), rows],
                           axis=1).tofile(out)
            done += rows.size
            print(f"{done} tokens, {done / (time.monotonic() - begin):.0f} "
                  f"tok/s", flush=True)


if __name__ == "__main__":
    main()
