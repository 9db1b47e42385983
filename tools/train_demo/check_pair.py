"""Checks that Foretoken and Hugging Face transformers agree on greedy tokens.

Both continue 25 beginnings of held-out documents of each kind, in fp32. Exits
with 1 at the first difference.
"""
import argparse
import json
import subprocess
import sys

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

PROMPT, LENGTH = 64, 48


def prompts(data, tokenizer, count):
    for kind in ("code", "stories"):
        with open(f"{data}/eval_{kind}.json") as f:
            texts = json.load(f)["texts"]
        ids = [[0] + tokenizer.encode(t, add_special_tokens=False).ids[:PROMPT]
               for t in texts]
        for i, p in enumerate([p for p in ids if len(p) > PROMPT][:count]):
            yield f"{kind} {i}", p


def foretoken(binary, model, prompt):
    run = subprocess.run(
        [binary, "generate", "--local", "--model", model, "--precision", "fp32",
         "--max-tokens", str(LENGTH), "--prompt-ids",
         ",".join(map(str, prompt)), "--json"],
        check=True, capture_output=True, text=True)
    return json.loads(run.stdout)["token_ids"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, nargs="+")
    parser.add_argument("--data", required=True, help="prepare.py's folder")
    parser.add_argument("--foretoken", required=True, help="the binary")
    parser.add_argument("--count", type=int, default=25)
    args = parser.parse_args()
    differ = 0
    for directory in args.model:
        model = AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32).eval()
        tokenizer = Tokenizer.from_file(f"{directory}/tokenizer.json")
        equal = total = 0
        for name, prompt in prompts(args.data, tokenizer, args.count):
            with torch.inference_mode():
                theirs = model.generate(
                    torch.tensor([prompt]), do_sample=False,
                    max_new_tokens=LENGTH,
                    attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                    pad_token_id=0)[0, len(prompt):].tolist()
            ours = foretoken(args.foretoken, directory, prompt)
            total += 1
            equal += ours == theirs
            if ours != theirs:
                print(f"{directory}: {name} differs\n  {theirs}\n  {ours}")
        print(f"{directory}: {equal} of {total} equal")
        differ += total - equal
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
