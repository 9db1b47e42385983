"""Text to tokens: trains the tokenizer, encodes train and held-out sets.

Writes OUT/tokenizer.json, and OUT/{train,eval}_{code,stories}.bin (uint16 ids,
id 0 before every document and after the last one), and the held-out sizes in
OUT/eval_*.bytes. Whole documents are held out, selected by a hash of their path
or number.
"""
import argparse
import glob
import hashlib
import json
import lzma
import os

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from tokenizers import processors, trainers

END = "<|endoftext|>"
VOCAB = 4096
MAX_FILE_BYTES = 100_000  # longer files are tables and generated code
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def held_out(name, per_mille):
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "big") % 1000 < per_mille


def code_documents(root, max_bytes):
    """(path, text) in the order of a hash of the path, up to max_bytes."""
    paths = glob.glob(f"{root}/**/*.py", recursive=True)
    paths = [p for p in paths if os.path.isfile(p) and not os.path.islink(p)]
    paths.sort(key=lambda p: hashlib.sha256(p[len(root):].encode()).digest())
    total, seen = 0, set()
    for path in paths:
        data = open(path, "rb").read()
        digest = hashlib.sha256(data).digest()
        if not 200 <= len(data) <= MAX_FILE_BYTES or digest in seen:
            continue
        seen.add(digest)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            continue
        total += len(data)
        if total > max_bytes:
            return
        yield path[len(root):], text


def story_documents(paths):
    for path in paths:
        text = lzma.open(path, "rt", encoding="utf-8").read()
        for i, story in enumerate(text.split(END)):
            story = story.strip()
            if len(story) >= 100:
                yield f"{os.path.basename(path)}#{i}", story + "\n"


def make_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", special_tokens=[(END, 0)])
    return tokenizer


def encode(tokenizer, texts):
    ids = []
    for begin in range(0, len(texts), 512):
        for e in tokenizer.encode_batch(texts[begin:begin + 512],
                                        add_special_tokens=False):
            ids.append(np.array([0] + e.ids, dtype=np.uint16))
    return np.concatenate(ids + [np.zeros(1, np.uint16)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--code", required=True, help="folder of .py files")
    parser.add_argument("--stories", nargs="+", required=True,
                        help="xz texts, stories ended by " + END)
    parser.add_argument("--out", required=True)
    parser.add_argument("--max-code-bytes", type=int, default=80_000_000)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    split = {"train_code": [], "eval_code": [],
             "train_stories": [], "eval_stories": []}
    names = {"eval_code": [], "eval_stories": []}
    for kind, documents in (
            ("code", code_documents(args.code, args.max_code_bytes)),
            ("stories", story_documents(args.stories))):
        for name, text in documents:
            part = "eval" if held_out(name, 15 if kind == "code" else 40) \
                else "train"
            split[f"{part}_{kind}"].append(text)
            if part == "eval":
                names[f"eval_{kind}"].append(name)
    tokenizer = make_tokenizer(
        split["train_stories"] + split["train_code"][::3])
    tokenizer.save(f"{args.out}/tokenizer.json")
    for name, texts in split.items():
        ids = encode(tokenizer, texts)
        ids.tofile(f"{args.out}/{name}.bin")
        size = sum(len(t.encode()) for t in texts)
        print(f"{name}: {len(texts)} documents, {size} bytes, "
              f"{len(ids)} tokens", flush=True)
        if name.startswith("eval"):
            with open(f"{args.out}/{name}.json", "w") as f:
                json.dump({"bytes": size, "names": names[name],
                           "texts": texts}, f)


if __name__ == "__main__":
    main()
