#!/usr/bin/env python3
"""Makes the golden GGUF files of this folder with the Python package `gguf`.

blocks.gguf: for every quantised type T a tensor "T" of random blocks and a
tensor "T.values", what the package decodes them to.
llama.gguf, qwen2.gguf, qwen3.gguf: the checkpoints of ../models that MODELS
names, with the same values, in the names and orders of llama.cpp's converter.

tokenizer_PRE.gguf: a small vocabulary for each pre-tokenizer, beside the
tokenizer.json that it was made of and what the package `tokenizers` makes of
odd texts with that (lines as in ../tokenizers). tokenizer_llama.gguf: the
pieces of ../tokenizers/sp_bytes.model, with what `sentencepiece` makes of texts
without control pieces, which a GGUF file has as tokens.

Needs gguf, numpy, tokenizers and sentencepiece; the build and the tests need
none of them:

    python3 make_gguf_goldens.py
"""
import json
import os
import struct
import sys

import gguf
import numpy as np
import sentencepiece
from gguf import GGMLQuantizationType as Type
from tokenizers import (AddedToken, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tokenizers"))
from make_goldens import (CORPUS, LLAMA3, ODD, QWEN2,  # noqa: E402
                          random_texts, split, write_gzip)

TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
HAN = split("[一-龥ࠀ-一가-퟿]+")
DIGITS = pre_tokenizers.Digits(individual_digits=True)
LETTERS = (
    "\\s?["
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf"
    "\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d"
    "\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d"
    "\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"
    "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d"
    "\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
    "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
    "]+")
MARKS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
GPT2 = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|"
    r"\s+(?!\S)|\s+")
# name: (steps before ByteLevel, its own pattern?, ignore_merges, NFC)
PRE_TOKENIZERS = {
    "gpt-2": ([], True, False, False),
    # No model's own: what llama.cpp does where a file names no other.
    "default": ([split(r"[\p{P}\$\+<=>\^~\|]+"), split(GPT2),
                 split(r"\p{N}+"), split("[0-9][0-9][0-9]")],
                False, False, False),
    "smollm": ([DIGITS], True, False, False),
    "llama-bpe": ([split(LLAMA3)], False, True, False),
    "qwen2": ([split(QWEN2)], False, False, True),
    "tekken": ([split(TEKKEN)], False, True, False),
    "deepseek-llm": ([split("[\r\n]"), split(LETTERS),
                      split(MARKS), split(r"\s+$"),
                      HAN, DIGITS], False, False, False),
    "deepseek-coder": ([split("[\r\n]"), split(r"\s?\p{L}+"),
                        split(r"\s?\p{P}+"), HAN, DIGITS], False, False, False),
}
BLOCK_TYPES = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1,
               Type.Q4_K, Type.Q5_K, Type.Q6_K]
# The byte offsets of the fp16 scales in a block.
SCALES = {Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0],
          Type.Q5_1: [0, 2], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2],
          Type.Q6_K: [208]}
MODELS = {"llama": "llama_llama3_rope", "qwen2": "qwen2_tied",
          "qwen3": "qwen3"}


def make_blocks():
    rng = np.random.default_rng(16)
    writer = gguf.GGUFWriter(os.path.join(HERE, "blocks.gguf"), "none")
    for kind in BLOCK_TYPES:
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (512 // elements, size), dtype=np.uint8)
        for at in SCALES[kind]:  # finite, with subnormals among them
            scales = rng.standard_normal(len(blocks)) * 10.0 ** rng.uniform(
                -6, 1, len(blocks))
            blocks[:, at:at + 2] = scales.astype("<f2").view(np.uint8).reshape(
                -1, 2)
        rows = blocks.reshape(2, -1)
        values = gguf.quants.dequantize(rows, kind)
        assert values.shape == (2, 256) and np.isfinite(values).all()
        writer.add_tensor(kind.name, rows, raw_dtype=kind)
        writer.add_tensor(kind.name + ".values", values)
    finish(writer)


def read_safetensors(path):
    """Names, and raw bf16 words [shape]."""
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16"
        begin, end = entry["data_offsets"]
        words = np.frombuffer(data[8 + size + begin:8 + size + end], "<u2")
        tensors[name] = words.reshape(entry["shape"])
    return tensors


def rotary_pairs(words, heads):
    """LlamaModel.permute of convert_hf_to_gguf.py."""
    return words.reshape(heads, 2, words.shape[0] // heads // 2,
                         *words.shape[1:]).swapaxes(1, 2).reshape(words.shape)


def llama3_divisors(config):
    rope = config["rope_parameters"]
    dim = config["head_dim"]
    divisors = []
    for i in range(0, dim, 2):
        wavelength = 2 * np.pi * rope["rope_theta"] ** (i / dim)
        turns = rope["original_max_position_embeddings"] / wavelength
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        if turns < low:
            divisors.append(rope["factor"])
        elif turns > high:
            divisors.append(1.0)
        else:
            smooth = (turns - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(divisors, dtype=np.float32)


def make_model(arch, folder):
    folder = os.path.join(HERE, "..", "models", folder)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    heads = config["num_attention_heads"]
    kv_heads = config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    config["head_dim"] = head_dim
    rope = config.get("rope_parameters") or config
    writer = gguf.GGUFWriter(os.path.join(HERE, arch + ".gguf"), arch)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(head_dim)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    if head_dim * heads != config["hidden_size"]:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch == "llama":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config))
    number = next(key for key, name in gguf.MODEL_ARCH_NAMES.items()
                  if name == arch)
    names = gguf.get_tensor_name_map(number, config["num_hidden_layers"])
    tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
    for name, words in tensors.items():
        if arch == "llama" and ("q_proj" in name or "k_proj" in name):
            words = rotary_pairs(words, heads if "q_proj" in name else kv_heads)
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if words.ndim == 1:
            writer.add_tensor(stored, (words.astype("<u4") << 16).view("<f4"))
        else:
            writer.add_tensor(stored, np.ascontiguousarray(words).view(np.uint8),
                              raw_dtype=Type.BF16)
    finish(writer)


def write_vectors(name, encode, decode, without=()):
    rows = []
    for text in ODD + random_texts(name, 40):
        if any(piece in text for piece in without):
            continue
        ids = encode(text)
        rows += [{"text": text, "ids": ids}, {"ids": ids, "decoded": decode(ids)}]
    write_gzip(os.path.join(HERE, name + ".jsonl.gz"),
               "".join(json.dumps(row) + "\n" for row in rows))


def make_byte_level(pre):
    steps, own_pattern, ignore_merges, nfc = PRE_TOKENIZERS[pre]
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [
        pre_tokenizers.ByteLevel(add_prefix_space=False,
                                 use_regex=own_pattern)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=600, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|begin|>", "<|end|>"]))
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False),
                          AddedToken("  ¤", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    text = tokenizer.to_str()
    name = "tokenizer_" + pre
    if pre != "deepseek-llm":  # has an anchor that the reader refuses
        write_gzip(os.path.join(HERE, name + ".json.gz"), text)
    data = json.loads(text)
    size = tokenizer.get_vocab_size()
    types = [gguf.TokenType.NORMAL] * size
    for token in data["added_tokens"]:
        types[token["id"]] = (gguf.TokenType.CONTROL if token["special"]
                              else gguf.TokenType.USER_DEFINED)
    tokens = [tokenizer.id_to_token(i) for i in range(size)]
    for i in range(3):  # as the converter pads to the embedding's rows
        tokens.append(f"[PAD{i}]")
        types.append(gguf.TokenType.UNUSED)
    writer = gguf.GGUFWriter(os.path.join(HERE, name + ".gguf"), "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(m) if isinstance(m, list) else m
                             for m in data["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(True)
    writer.add_chat_template("{{ messages }}")
    finish(writer)
    write_vectors(name,
                  lambda t: tokenizer.encode(t, add_special_tokens=False).ids,
                  tokenizer.decode)


def make_sentencepiece():
    sp = sentencepiece.SentencePieceProcessor(
        model_file=os.path.join(HERE, "..", "tokenizers", "sp_bytes.model"))
    writer = gguf.GGUFWriter(os.path.join(HERE, "tokenizer_llama.gguf"),
                             "llama")
    tokens, scores, types, controls = [], [], [], []
    for i in range(sp.get_piece_size()):
        piece = sp.id_to_piece(i)
        kind = gguf.TokenType.NORMAL
        if sp.is_unknown(i):
            kind = gguf.TokenType.UNKNOWN
        elif sp.is_control(i):
            kind = gguf.TokenType.CONTROL
            controls.append(piece)
        elif sp.is_byte(i):
            kind = gguf.TokenType.BYTE
        elif piece in ("<tool>", "né", "  ", "▁▁▁▁"):  # user_defined_symbols
            kind = gguf.TokenType.USER_DEFINED
        tokens.append(piece)
        scores.append(sp.get_score(i))
        types.append(kind)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_remove_extra_whitespaces(False)
    finish(writer)
    write_vectors("tokenizer_llama", sp.encode, sp.decode, controls)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    make_blocks()
    for arch, folder in MODELS.items():
        make_model(arch, folder)
    for pre in PRE_TOKENIZERS:
        make_byte_level(pre)
    make_sentencepiece()


if __name__ == "__main__":
    main()
