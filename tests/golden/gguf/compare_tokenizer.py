#!/usr/bin/env python3
"""Compares the tokenizer of a GGUF file with its reference package.

    python3 compare_tokenizer.py FORETOKEN MODEL.gguf

Builds the reference from the file: with `tokenizers` from vocabulary and merges
(`gpt2`), with `sentencepiece` from pieces and scores (`llama`). Both encode 2,000
texts: code, several scripts, emoji, white space. Needs gguf, tokenizers, sentencepiece and protobuf;
exits with 77 where one of them, or the model, is missing.
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
    from sentencepiece import SentencePieceProcessor
    from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec
    sys.path.insert(0, HERE)
    sys.path.append(os.path.join(HERE, "..", "tokenizers"))
    import make_gguf_goldens as goldens
except ImportError as error:
    skip(error)


def original(path):
    """A function from a text to its ids, and what its texts must not hold."""
    fields = gguf.GGUFReader(path).fields

    def value(key, default=None):
        field = fields.get("tokenizer.ggml." + key)
        return default if field is None else field.contents()

    kinds = {"gpt2": byte_level, "llama": sentence_piece}
    return kinds[value("model")](value)


def sentence_piece(value):
    # The two enums give their kinds of piece the same numbers.
    pieces = [ModelProto.SentencePiece(piece=token, score=score, type=kind)
              for token, score, kind in
              zip(value("tokens"), value("scores"), value("token_type"))]
    # The package refuses a model that has no unknown piece where it expects it.
    unknown = value("token_type").index(gguf.TokenType.UNKNOWN)
    model = ModelProto(
        pieces=pieces,
        trainer_spec=TrainerSpec(model_type=TrainerSpec.BPE,
                                 byte_fallback=gguf.TokenType.BYTE in
                                 value("token_type"), unk_id=unknown,
                                 unk_piece=value("tokens")[unknown]))
    normalizer = model.normalizer_spec
    normalizer.add_dummy_prefix = value("add_space_prefix", True)
    normalizer.remove_extra_whitespaces = value("remove_extra_whitespaces",
                                                False)
    normalizer.precompiled_charsmap = bytes(value("precompiled_charsmap", []))
    # The package takes control pieces in a text for plain text.
    controls = [piece.piece for piece in pieces
                if piece.type == gguf.TokenType.CONTROL]
    encode = SentencePieceProcessor(
        model_proto=model.SerializeToString()).encode
    return encode, controls


def byte_level(value):
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
        zip(tokens, types) if kind in (gguf.TokenType.CONTROL,
                                        gguf.TokenType.USER_DEFINED)])

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    return encode, []


def texts(without):
    made = list(goldens.ODD)
    with open(json.__file__) as file:  # code, by the line and by the block
        code = file.read()
    made += code.split("\n\n") + code.split("\n")[:300]
    made += ["<|im_start|>user\nWhat's 12*13?<|im_end|>\n"]
    made += goldens.random_texts("compare", 3000)
    return [text for text in made
            if not any(piece in text for piece in without)][:2000]


def main():
    foretoken, model = sys.argv[1:3]
    if not os.path.exists(model) and ".cache" in model:
        skip(f"no {model}: run tools/models smollm2")
    want, without = original(model)
    compared = texts(without)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in compared)
    ran = subprocess.run([foretoken, "tokenize", "--tokenizer", model],
                         input=lines, capture_output=True, text=True,
                         check=True)
    different = 0
    for text, line in zip(compared, ran.stdout.splitlines(), strict=True):
        ids = want(text)
        if ids != json.loads(line)["ids"]:
            different += 1
            print(f"{text!r}: {json.loads(line)['ids']}, want {ids}")
    print(f"{len(compared) - different} of {len(compared)} texts equal")
    sys.exit(1 if different or len(compared) < 2000 else 0)


if __name__ == "__main__":
    main()
