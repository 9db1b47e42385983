"""A tiny model that recites: what it writes follows from its prompt's last token.

    scripted_model.py FOLDER

The folder gets a Llama of one layer whose attention and feed-forward parts add
nothing: its logits depend on the last token alone, and lead from every piece of an
answer to the next. Which answer it is, the chat template says by the token with
which it ends a prompt, so that tests of tool calls know what the model will say.
A byte of a prompt is a token.
"""

import array
import json
import pathlib
import struct
import sys

# Answers, each cut into tokens. No two pieces are equal.
SCENES = {
    "call": ["<tool_call>\n", '{"name": "get_weather", ',
             '"arguments": {"city": "Par', 'is"}}', "\n</tool_call>"],
    "both": ["I look", " at both.\n", '<tool_call>\n{"name": ',
             '"get_weather", "arguments": ', '{"city": "Oslo"}}',
             "\n</tool_call>\n<tool_call>", '\n{"name": "get_weather"',
             ', "arguments": {"city": "R', 'ome"}}\n', "</tool_call>\n"],
    "told": ["It is ", "18 degrees", " in Paris."],
    "ordered": ["As the", " system ", "ordered."],
    "spoken": ["I have ", "no tools", " for that."],
    # Behind the last token of a prompt of /infill.
    "fim_middle": ["    return", " a + b"],
}
TEMPLATE = """\
{%- if tools %}<|im_start|>system
Call functions by <tool_call>{"name": NAME, "arguments": {}}</tool_call>:
{{ tools | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>{{ call.function | tojson }}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% set last = messages[-1] %}
{%- if last.role == 'tool' and '18' in last.content
       and messages[-2].tool_calls[0].function.name == 'get_weather'
       and messages[-2].tool_calls[0].function.arguments.city == 'Paris'
       and messages[-2].tool_calls[0].id == last.tool_call_id %}<|told|>
{%- elif messages[0].role == 'system' and 'orders' in messages[0].content
   %}<|ordered|>
{%- elif tools and 'both' in last.content %}<|both|>
{%- elif tools and tools[0].function.name == 'get_weather' %}<|call|>
{%- else %}<|spoken|>{% endif %}
{%- endif %}"""
WIDTH = 512  # at least the vocabulary: an embedding is one unit vector
POSITIONS = 8192


def byte_characters():
    """The characters that stand for bytes in a byte-level vocabulary."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    characters = {byte: chr(byte) for byte in shown}
    characters |= {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    return characters


def tensor(rows, columns, ones=()):
    values = array.array("f", bytes(4 * rows * columns))
    for row, column in ones:
        values[row * columns + column] = 1
    return [rows, columns] if columns > 1 else [rows], values


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    characters = byte_characters()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>",
                "<|fim_prefix|>", "<|fim_suffix|>",
                *(f"<|{scene}|>" for scene in SCENES)]
    pieces = ["".join(characters[byte] for byte in piece.encode())
              for scene in SCENES.values() for piece in scene]
    texts = [*specials, *characters.values(), *pieces]
    ids = {text: i for i, text in enumerate(texts)}
    assert len(ids) == len(texts) <= WIDTH, "two pieces are equal"

    # From each token to the next one.
    follows, at = [], len(specials) + len(characters)
    for scene, answer in SCENES.items():
        path = [ids[f"<|{scene}|>"], *range(at, at + len(answer)),
                ids["<|im_end|>"]]
        follows += zip(path, path[1:])
        at += len(answer)

    byte_level = {"type": "ByteLevel", "add_prefix_space": False,
                  "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": ids[text], "content": text, "single_word": False,
             "lstrip": False, "rstrip": False, "normalized": False,
             "special": True} for text in specials],
        "normalizer": None, "pre_tokenizer": byte_level,
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "vocab": ids, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "eos_token": "<|im_end|>", "chat_template": TEMPLATE}))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": WIDTH, "num_hidden_layers": 1,
        "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 64,
        "intermediate_size": 64, "vocab_size": len(texts),
        "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "bos_token_id": None,
        "eos_token_id": ids["<|im_end|>"]}))

    ones = [(i, 0) for i in range(WIDTH)]
    layer = "model.layers.0."
    tensors = {
        "model.embed_tokens.weight": tensor(
            len(texts), WIDTH, ((i, i) for i in range(len(texts)))),
        layer + "input_layernorm.weight": tensor(WIDTH, 1, ones),
        layer + "self_attn.q_proj.weight": tensor(512, WIDTH),
        layer + "self_attn.k_proj.weight": tensor(64, WIDTH),
        layer + "self_attn.v_proj.weight": tensor(64, WIDTH),
        layer + "self_attn.o_proj.weight": tensor(WIDTH, 512),
        layer + "post_attention_layernorm.weight": tensor(WIDTH, 1, ones),
        layer + "mlp.gate_proj.weight": tensor(64, WIDTH),
        layer + "mlp.up_proj.weight": tensor(64, WIDTH),
        layer + "mlp.down_proj.weight": tensor(WIDTH, 64),
        "model.norm.weight": tensor(WIDTH, 1, ones),
        # A logit of about 22 for the token that follows, else 0.
        "lm_head.weight": tensor(
            len(texts), WIDTH, ((after, token) for token, after in follows)),
    }
    header, offset = {}, 0
    for name, (shape, values) in tensors.items():
        size = 4 * len(values)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            values.tofile(file)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
