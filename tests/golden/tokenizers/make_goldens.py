#!/usr/bin/env python3
"""Makes the golden tokenizers and vectors of this folder.

Trains small vocabularies with the `tokenizers` and `sentencepiece` packages and
records what those libraries make of odd texts and of random ids. Needs both
packages; the build and the tests need neither. Run in this folder:

    python3 make_goldens.py

Files: NAME.json.gz or NAME.model (the tokenizer) and NAME.jsonl.gz, one object
a line: {"text", "ids"} for encoding, {"ids", "decoded"} for decoding.
"""
import gzip
import io
import json
import os
import random

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

SENTENCES = [
    "The quick drafter proposes a tree of tokens and the target checks it.",
    "It's what they're doing; we've said they'll stop, I'd say, I'm sure.",
    "def verify(tree, rows=8):\n    for row in rows:\n        yield row + 1\n",
    "In 2024 about 1234567 requests took 3.14159 ms, or 0x1F cycles.",
    "Les élèves français étaient déjà à l'école près de la forêt.",
    "Die größten Bäume überragen die Häuser, sagt Frau Müller.",
    "Съешь ещё этих мягких французских булок, да выпей чаю.",
    "今天天气很好，我们一起去公园散步吧。日本語の文章もあります。",
    "한국어 문장도 조금 있습니다. 안녕하세요 여러분.",
    "مرحبا بالعالم هذا نص قصير", "नमस्ते दुनिया यह एक छोटा पाठ है",
    "\tint main(void) {\r\n\t\treturn 0;\r\n\t}\r\n",
    "A  line   with    runs     of      spaces\n\n\nand newlines.",
    "😀 emoji 👩‍👩‍👧 family 🇫🇷 flag 🦙 llama",
]
CORPUS = [s * 2 for s in SENTENCES for _ in range(4)]

ODD = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\n\n\n", "\t\n", "\r\n", "\r",
    "a", " a", "a ", "  a", "a  ", " a b ", "a\nb", "a \n b", "a\n\n  b\t\tc",
    "Hello world", " Hello  world!", "HELLO WORLD", "hello_world-x.y/z",
    "it's IT'S It'S they'RE we'Ve I'LL i'd o'clock 'tis ''s '", "don’t",
    "'ſ 'S 's 'K 'M'm", "'ſt ſ K k", "x'll'd've", "1", "12", "123", "1234",
    "1234567890", "3.14159", "1,000,000", "½ ¾ ² Ⅷ ⅷ ① 一二三 ٣٤٥ ४५६",
    "a1b2c3", "0x1F", "élève", "e\u0301le\u0300ve", "A\u030a Å Å",
    "ﬁ ﬂ ﬃ", "한국어", "\u1112\u1161\u11ab", "今天天气很好", "日本語カタカナ",
    "今天 is 天气good很", "，。！？、", "！＂＃", "Съешь ещё", "مرحبا بالعالم",
    "नमस्ते दुनिया", "😀", "😀😀😀", "👩‍👩‍👧", "🇫🇷🇩🇪", "👍🏽", "a😀b 😀 c",
    "\u00a0", "a\u00a0b", "\u2003x\u2003", "\u3000\u3000y", "\u180ez",
    "a\u200bb\u200dc", "\u2028line\u2029para", "\x85next", "\x0b\x0c",
    "\x00", "a\x00b", "\x7f\x80\x9f", "\ufeffbom", "\ufffd", "\ue000",
    "\U0010ffff", "a\u0300\u0301\u0302\u0303", "Z̸̢͎a̷̛l̵go", "_", "__init__",
    "!!!", "!!! \n", "...\n\n...", "/* c */ // d\n", "if (a&&b||!c) {\r\n}",
    "    indented\n        more\n\tmixed \t \n   ", "trailing   ", "   ",
    "\n   \n   x", "a" * 70, "ab" * 50, " " * 40, "\n" * 33, "▁", "▁▁a", "a▁b",
    " ▁ a", "<0x0A>", "<s>", "</s>", "<unk>", "a<s>b", "<s> x </s>", "<|sep|>",
    "x<|sep|>y", "x <|sep|> y", "<|sep|><|sep|>", "<tool> x", "x <tool>",
    "  <tool>  x", "<tool>\n\n<tool>", "word", "a word b", "words", "sword",
    "aword word. word", "<mid>", "a<mid>b", "e\u0301<mid>", "né", "ne\u0301",
    "xnéx", "qqq", "ŋŋŋ ŧ", "aŋb ŋŋc", "§", "a  §  b",
]


def random_texts(seed, count):
    rng = random.Random(seed)
    parts = [p for s in SENTENCES for p in s.split(" ")] + ODD + [" ", "\n"] * 20
    texts = ["".join(rng.choice(parts) + rng.choice(["", "", " "])
                     for _ in range(rng.randrange(2, 9))) for _ in range(count)]
    for _ in range(count):
        planes = [(32, 127), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x590),
                  (0x900, 0x980), (0x2000, 0x2070), (0x3000, 0x30FF),
                  (0x4E00, 0x4E80), (0xAC00, 0xAC80), (0x1F600, 0x1F640)]
        plane = rng.sample(planes, 3)
        texts.append("".join(chr(rng.randrange(*rng.choice(plane)))
                             for _ in range(rng.randrange(1, 24))))
    return texts


def write_gzip(name, text):
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as f:
        f.write(text.encode())
    with open(name, "wb") as f:
        f.write(raw.getvalue())


def write_vectors(name, encode, decode, size):
    rng = random.Random(name)
    rows = []
    for text in ODD + random_texts(name, 60):
        ids = encode(text)
        rows.append({"text": text, "ids": ids})
        rows.append({"ids": ids, "decoded": decode(ids)})
    for _ in range(150):
        low = rng.choice([0, 0, size // 2])
        high = rng.choice([size, min(size, 300)])
        ids = [rng.randrange(min(low, high - 1), high)
               for _ in range(rng.randrange(1, 12))]
        rows.append({"ids": ids, "decoded": decode(ids)})
    write_gzip(name + ".jsonl.gz", "".join(json.dumps(r) + "\n" for r in rows))


def write_json(name, tokenizer):
    text = tokenizer.to_str()
    write_gzip(name + ".json.gz", text)
    tokenizer = Tokenizer.from_str(text)
    write_vectors(name,
                  lambda t: tokenizer.encode(t, add_special_tokens=False).ids,
                  lambda ids: tokenizer.decode(ids), tokenizer.get_vocab_size())


def byte_level(name, steps, normalizer=None, add_prefix_space=False,
               use_regex=False, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [
        pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space,
                                 use_regex=use_regex)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=700, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens(["<s>", "</s>", "<|sep|>"])
    tokenizer.add_tokens([
        AddedToken("<tool>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("word", single_word=True, normalized=False),
        AddedToken("né", normalized=True),
        AddedToken("<mid>", rstrip=True, normalized=True)])
    begin = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A",
                                      special_tokens=[("<s>", begin)])])
    write_json(name, tokenizer)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert=invert)


def sp_like(name, metaspace, fallback):
    alphabet = [f"<0x{b:02X}>" for b in range(256)] if fallback else []
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=fallback))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
            prepend_scheme=metaspace, split=True)
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=metaspace)
    else:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        # Only while training: a vocabulary without pieces across spaces.
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
            prepend_scheme="never", split=True)
        tokenizer.decoder = decoders.Sequence([
            decoders.Replace("▁", " "), decoders.ByteFallback(),
            decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    # Some scripts stay unknown to the vocabulary.
    tokenizer.train_from_iterator(CORPUS[:28], trainers.BpeTrainer(
        vocab_size=800, show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>"] + alphabet))
    data = json.loads(tokenizer.to_str())
    # Byte tokens are part of the model, not added tokens.
    data["added_tokens"] = data["added_tokens"][:3]
    if not metaspace:
        data["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_tokens([AddedToken("<|sep|>", normalized=False),
                          AddedToken("né", normalized=True),
                          AddedToken("<tool>", lstrip=True, rstrip=True,
                                     normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)])
    write_json(name, tokenizer)


def sentencepiece_model(name, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for s in CORPUS for line in s.split("\n")),
        model_writer=model, model_type="bpe", minloglevel=2, **options)
    with open(name + ".model", "wb") as f:
        f.write(model.getvalue())
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    write_vectors(name, sp.encode, sp.decode, sp.get_piece_size())


def main():
    byte_level("llama3", [split(LLAMA3)], ignore_merges=True)
    byte_level("qwen2", [split(QWEN2)], normalizer=normalizers.NFC())
    byte_level("gpt2_prefix_space", [], add_prefix_space=True, use_regex=True)
    byte_level("removed_inverted", [split(LLAMA3, "removed", True)])
    byte_level("deepseek", [
        split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
        split("[一-龥ࠀ-一가-퟿]+"),
        pre_tokenizers.Digits(individual_digits=True)])
    byte_level("deepseek3", [
        split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"),
        split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
              r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
              r"\s*[\r\n]+|\s+(?!\S)|\s+")])
    sp_like("llama2_json", None, True)
    sp_like("metaspace_first", "first", False)
    sp_like("metaspace_always", "always", False)
    sentencepiece_model("sp_bytes", vocab_size=700, byte_fallback=True,
                        character_coverage=0.98, split_digits=True,
                        normalization_rule_name="identity",
                        remove_extra_whitespaces=False,
                        allow_whitespace_only_pieces=True,
                        user_defined_symbols=["<tool>", "né", "  ", "▁▁▁▁"],
                        control_symbols=["<|sep|>", "§"])
    with open("rules.tsv", "w") as f:
        f.write("41\t61\nC5\t61 30A\nFB01\t66 69\nA0\t20\n3000\t20\n200B\t\n"
                "65 301\tE9\n9\t20\n")
    sentencepiece_model("sp_rules", vocab_size=500, character_coverage=0.98,
                        normalization_rule_tsv="rules.tsv",
                        user_defined_symbols=["<tool>"])
    os.remove("rules.tsv")


if __name__ == "__main__":
    main()
