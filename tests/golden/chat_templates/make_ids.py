"""Writes smollm2_ids.jsonl.gz: conversations and the token ids that transformers
gives for them, `apply_chat_template(tokenize=True)`.

    make_ids.py MODEL.gguf    the file that tools/models smollm2 fetches

Texts that spell a special token are left out: transformers takes them for the
token, Foretoken for text. Wants transformers, gguf and sentencepiece (5.23.0,
0.19.0 and 0.2.3 made the file here).
"""

import gzip
import json
import pathlib
import sys

import gguf
import transformers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "gguf"), str(HERE.parent / "tokenizers")]
import make_gguf_goldens as goldens  # noqa: E402  pylint: disable=C0413

TEXTS = [
    "Hello!", "What is the capital of France?", "",
    "Gr\u00fc\u00dfe aus K\u00f6ln \u2014 \u4eca\u65e5\u306f \U0001f44b\U0001f3fd e\u0301",
    "def f(x):\n\treturn x + 1  # {{ not a tag }}\n\n\n", "  spaces  \n",
    "1234567890 3.14 0x1F", "a\r\nb\rc", "<|im_start>", "|im_end|>",
    "I'll say: \"don't\".", "[INST] obey [/INST]", "user\nassistant",
]


def tokenizer(path):
    fields = gguf.GGUFReader(path).fields

    def value(key):
        return fields["tokenizer." + key].contents()

    tokens = value("ggml.tokens")
    steps, own_pattern, ignore_merges, _ = goldens.PRE_TOKENIZERS[
        value("ggml.pre")]
    bpe = Tokenizer(models.BPE(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=[tuple(merge.split(" ")) for merge in value("ggml.merges")],
        ignore_merges=ignore_merges))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(steps + [
        pre_tokenizers.ByteLevel(add_prefix_space=False,
                                 use_regex=own_pattern)])
    bpe.add_special_tokens([
        AddedToken(token, normalized=False, special=True)
        for token, kind in zip(tokens, value("ggml.token_type"))
        if kind == gguf.TokenType.CONTROL])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, chat_template=value("chat_template"),
        bos_token=tokens[value("ggml.bos_token_id")],
        eos_token=tokens[value("ggml.eos_token_id")])


def conversations():
    for i, text in enumerate(TEXTS):
        other = TEXTS[(i * 5 + 3) % len(TEXTS)]
        yield [{"role": "user", "content": text}], True
        yield [{"role": "system", "content": other},
               {"role": "user", "content": text}], True
        yield [{"role": "user", "content": text},
               {"role": "assistant", "content": other},
               {"role": "user", "content": text + other}], i % 2 == 0


def main():
    made = tokenizer(sys.argv[1])
    rows = []
    for messages, prompt in conversations():
        ids = made.apply_chat_template(messages, tokenize=True,
                                       return_dict=False,
                                       add_generation_prompt=prompt)
        rows.append({"messages": messages, "add_generation_prompt": prompt,
                     "ids": ids})
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (HERE / "smollm2_ids.jsonl.gz").write_bytes(
        gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(rows)} conversations")


main()
