#!/usr/bin/env python3
"""Compares the tokenizer of a GGUF file with the package `tokenizers`.

    python3 compare_tokenizer.py FORETOKEN MODEL.gguf

Builds the package's tokenizer of the vocabulary and merges in the file and has
both encode 2,000 texts: code, several scripts, emoji, white space. Needs gguf,
tokenizers and sentencepiece (for make_goldens.py); exits with 77 where one of
them, or the model, is missing.
"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(SKIPPED)


try:
    import gguf
    from tokenizers import (AddedToken, Tokenizer, models, normalizers,
                            pre_tokenizers)
    sys.path.insert(0, HERE)
    sys.path.append(os.path.join(HERE, "..", "tokenizers"))
    import make_gguf_goldens as goldens
except ImportError as error:
    skip(error)


def original(path):
    fields = gguf.GGUFReader(path).fields

    def value(key):
        return fields["tokenizer.ggml." + key].contents()

    tokens, types = value("tokens"), value("token_type")
    steps, own_pattern, ignore_merges, nfc = goldens.PRE_TOKENIZERS[
        value("pre")]
    tokenizer = Tokenizer(models.BPE(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=[tuple(merge.split(" ")) for merge in value("merges")],
        ignore_merges=ignore_merges))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [
        pre_tokenizers.ByteLevel(add_prefix_space=False,
                                 use_regex=own_pattern)])
    tokenizer.add_special_tokens([
        AddedToken(token, normalized=False) for token, kind in
        zip(tokens, types) if kind == gguf.TokenType.CONTROL])
    return tokenizer


def texts():
    made = list(goldens.ODD)
    with open(json.__file__) as file:  # code, by the line and by the block
        code = file.read()
    made += code.split("\n\n") + code.split("\n")[:300]
    made += ["<|im_start|>user\nWhat's 12*13?<|im_end|>\n"]
    return (made + goldens.random_texts("compare", 1000))[:2000]


def main():
    foretoken, model = sys.argv[1:3]
    if not os.path.exists(model):
        skip(f"no {model}: run tools/models smollm2")
    want = original(model)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts())
    ran = subprocess.run([foretoken, "tokenize", "--tokenizer", model],
                         input=lines, capture_output=True, text=True,
                         check=True)
    different = 0
    for text, line in zip(texts(), ran.stdout.splitlines(), strict=True):
        ids = want.encode(text, add_special_tokens=False).ids
        if ids != json.loads(line)["ids"]:
            different += 1
            print(f"{text!r}: {json.loads(line)['ids']}, want {ids}")
    print(f"{len(texts()) - different} of {len(texts())} texts equal")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
