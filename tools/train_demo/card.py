"""Writes the pair's directories and its model card.

The card reports measurements only: the figures of evaluate.py, lines of the
training logs, unedited greedy samples.
"""
import argparse
import json
import os

import torch
from tokenizers import Tokenizer

import model as models

PROMPT, LENGTH = 48, 96


@torch.inference_mode()
def greedy(model, ids):
    past = [models.Past() for _ in model.layers]
    x, out = torch.tensor([ids]), []
    for step in range(LENGTH):
        offset = 0 if step == 0 else len(ids) + step - 1
        token = model(x, past, offset)[0, -1].argmax().item()
        if token == 0:
            break
        out.append(token)
        x = torch.tensor([[token]])
    return out


def samples(model, tokenizer, data, kind):
    with open(f"{data}/eval_{kind}.json") as f:
        texts = json.load(f)["texts"]
    lines = []
    for text in texts[:3]:
        ids = [0] + tokenizer.encode(text, add_special_tokens=False).ids[:PROMPT]
        written = tokenizer.decode(greedy(model, ids))
        lines += ["```text", tokenizer.decode(ids[1:]) + "▶" + written, "```", ""]
    return "\n".join(lines)


def thinned(path, lines=14):
    """Evenly thinned progress lines of the log, including the last one."""
    with open(path) as f:
        steps = [line.rstrip() for line in f if line.startswith("step ")]
    every = max(1, len(steps) // lines)
    return "\n".join(steps[::every] + steps[-1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--data", required=True, help="prepare.py's folder")
    parser.add_argument("--figures", required=True, help="evaluate.py's output")
    parser.add_argument("--log", nargs=2, required=True,
                        metavar=("TARGET", "DRAFT"))
    parser.add_argument("--commands", required=True,
                        help="file with the commands that were run")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    tokenizer_json = f"{args.data}/tokenizer.json"
    target = models.load_model(args.target).eval()
    models.export(target, f"{args.out}/target", tokenizer_json)
    models.export(models.load_model(args.draft), f"{args.out}/draft",
                  tokenizer_json)
    with open(args.figures) as f:
        rows = [json.loads(line) for line in f if line.startswith("{")]
    figures = ["| | " + " | ".join(r["kind"] for r in rows) + " |",
               "|---|" + "---|" * len(rows)]
    for key in rows[0]:
        if key != "kind":
            figures.append(f"| {key} | "
                           + " | ".join(str(r[key]) for r in rows) + " |")
    tokenizer = Tokenizer.from_file(tokenizer_json)
    for p in target.parameters():  # as exported
        p.data = p.data.bfloat16().float()
    here = os.path.dirname(os.path.abspath(__file__))
    with open(f"{here}/card.md") as f:
        card = f.read()
    with open(args.commands) as f:
        commands = f.read().rstrip()
    for name, value in {
            "commands": commands,
            "figures": "\n".join(figures),
            "target_log": thinned(args.log[0]),
            "draft_log": thinned(args.log[1]),
            "code_samples": samples(target, tokenizer, args.data, "code"),
            "story_samples": samples(target, tokenizer, args.data, "stories"),
    }.items():
        card = card.replace("{" + name + "}", value)
    with open(os.path.join(args.out, "README.md"), "w") as f:
        f.write(card)


if __name__ == "__main__":
    main()
