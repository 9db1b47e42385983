"""Held-out figures of the demo pair, as the model card prints them."""
import argparse
import json
import lzma

import numpy as np
import torch
import torch.nn.functional as F

import model as models
from kneser_ney import KneserNey

WINDOW, STRIDE = 1024, 512


def windows(ids):
    """(window, first position to count): counts each token once, after at least
    512 tokens of context if the text has them."""
    begin = 0
    while True:
        piece = ids[begin:begin + WINDOW + 1]
        yield piece, 0 if begin == 0 else WINDOW - STRIDE
        if begin + WINDOW + 1 >= len(ids):
            return
        begin += STRIDE


@torch.inference_mode()
def score(model, other, ids, device):
    """Nats of each model over ids[1:], and how often their arg max agrees."""
    nats, agree, count = [0.0, 0.0], 0, 0
    for piece, first in windows(ids):
        x = torch.from_numpy(piece.astype(np.int64)).to(device)[None]
        picks = []
        for i, m in enumerate((model, other)):
            logits = m(x[:, :-1]).float()[0, first:]
            nats[i] += F.cross_entropy(logits, x[0, 1 + first:],
                                       reduction="sum").item()
            picks.append(logits.argmax(-1))
        agree += (picks[0] == picks[1]).sum().item()
        count += len(picks[0])
    return nats, agree / count, count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--data", required=True, help="prepare.py's folder")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    target = models.load_model(args.target, args.device).eval()
    draft = models.load_model(args.draft, args.device).eval()
    train = np.concatenate([
        np.fromfile(f"{args.data}/train_{kind}.bin", dtype=np.uint16)
        for kind in ("code", "stories")])
    baseline = KneserNey(train)
    for kind in ("code", "stories"):
        ids = np.fromfile(f"{args.data}/eval_{kind}.bin", dtype=np.uint16)
        with open(f"{args.data}/eval_{kind}.json") as f:
            meta = json.load(f)
        (a, b), agreement, count = score(target, draft, ids, args.device)
        bits = lambda nats: nats / np.log(2) / meta["bytes"]
        raw = "".join(meta["texts"]).encode()
        packed = len(lzma.compress(raw, preset=9)) * 8 / len(raw)
        print(json.dumps({
            "kind": kind, "tokens": count, "bytes": meta["bytes"],
            "target_bpb": round(bits(a), 4), "draft_bpb": round(bits(b), 4),
            "kneser_ney_5_bpb": round(bits(baseline.nats(ids)), 4),
            "xz_9_bpb": round(packed, 4),
            "greedy_agreement": round(agreement, 4)}), flush=True)


if __name__ == "__main__":
    main()
