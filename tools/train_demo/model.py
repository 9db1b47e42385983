"""The demo pair's architecture (plain Llama) in PyTorch, with load and export.

Weights have Hugging Face's names, so that Foretoken and transformers can load
the exported directory.
"""
import json
import os
import shutil
import struct
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_ff: int
    vocab_size: int = 4096
    max_positions: int = 2048
    rope_theta: float = 10000.0
    eps: float = 1e-5

    @property
    def head_dim(self):
        return self.d_model // self.n_heads


TARGET = Shape(d_model=256, n_layers=8, n_heads=4, n_kv_heads=2, d_ff=768)
DRAFT = Shape(d_model=128, n_layers=4, n_heads=2, n_kv_heads=1, d_ff=352)


def rope_tables(shape, length, device):
    inverse = shape.rope_theta ** (
        -torch.arange(0, shape.head_dim, 2, dtype=torch.float64)
        / shape.head_dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * inverse
    angles = torch.cat([angles, angles], dim=1)
    return (angles.cos().float().to(device), angles.sin().float().to(device))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos.to(x.dtype) + turned * sin.to(x.dtype)


def attend(q, k, v, block=256):
    """Causal attention. On a CPU, in blocks of queries against the keys up to
    the end of the block, which is 1.5 times as fast as the library's."""
    q, k = q.to(v.dtype), k.to(v.dtype)
    length = q.shape[2]
    if q.device.type != "cpu" or length == 1 or length % block:
        return F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
    q = q * q.shape[-1] ** -0.5
    later = torch.ones(block, block, dtype=torch.bool).triu(1)
    out = []
    for begin in range(0, length, block):
        end = begin + block
        scores = q[:, :, begin:end] @ k[:, :, :end].transpose(-1, -2)
        own = scores[..., begin:].masked_fill(later, float("-inf"))
        scores = torch.cat([scores[..., :begin], own], dim=-1)
        out.append(torch.softmax(scores, -1) @ v[:, :, :end])
    return torch.cat(out, dim=2)


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        kv = s.n_kv_heads * s.head_dim
        self.input_layernorm = nn.Parameter(torch.ones(s.d_model))
        self.post_attention_layernorm = nn.Parameter(torch.ones(s.d_model))
        self.q_proj = nn.Linear(s.d_model, s.d_model, bias=False)
        self.k_proj = nn.Linear(s.d_model, kv, bias=False)
        self.v_proj = nn.Linear(s.d_model, kv, bias=False)
        self.o_proj = nn.Linear(s.d_model, s.d_model, bias=False)
        self.gate_proj = nn.Linear(s.d_model, s.d_ff, bias=False)
        self.up_proj = nn.Linear(s.d_model, s.d_ff, bias=False)
        self.down_proj = nn.Linear(s.d_ff, s.d_model, bias=False)

    def forward(self, x, cos, sin, past=None):
        s, (batch, length, _) = self.s, x.shape
        h = F.rms_norm(x, (s.d_model,), self.input_layernorm, s.eps)
        split = lambda t: t.view(batch, length, -1, s.head_dim).transpose(1, 2)
        q = rotate(split(self.q_proj(h)), cos, sin)
        k = rotate(split(self.k_proj(h)), cos, sin)
        v = split(self.v_proj(h))
        if past is not None:
            k, v = past.append(k, v)
        group = s.n_heads // s.n_kv_heads
        k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
        a = attend(q, k, v)
        x = x + self.o_proj(a.transpose(1, 2).reshape(batch, length, -1))
        h = F.rms_norm(x, (s.d_model,), self.post_attention_layernorm, s.eps)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Past:
    """Keys and values of one layer, for sampling one token per step."""

    def __init__(self):
        self.k = self.v = None

    def append(self, k, v):
        self.k = k if self.k is None else torch.cat([self.k, k], dim=2)
        self.v = v if self.v is None else torch.cat([self.v, v], dim=2)
        return self.k, self.v


class Llama(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.d_model)
        self.layers = nn.ModuleList(
            Layer(shape) for _ in range(shape.n_layers))
        self.norm = nn.Parameter(torch.ones(shape.d_model))
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 if "embed" in name
                                else shape.d_model ** -0.5)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(p)

    def forward(self, ids, past=None, offset=0):
        """Logits [batch, length, vocab]."""
        x = self.body(ids, past, offset)
        return x @ self.embed_tokens.weight.to(x.dtype).T

    def body(self, ids, past=None, offset=0):
        """Input of the output layer [batch, length, d_model]."""
        length = ids.shape[1]
        cos, sin = rope_tables(self.shape, offset + length, ids.device)
        cos, sin = cos[offset:], sin[offset:]
        x = self.embed_tokens(ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, cos, sin, None if past is None else past[i])
        return F.rms_norm(x, (self.shape.d_model,), self.norm, self.shape.eps)

    @torch.no_grad()
    def start_embedding_from(self, teacher):
        """Initialises from the principal axes of the teacher's embedding."""
        e = teacher.embed_tokens.weight
        _, _, axes = torch.linalg.svd(e, full_matrices=False)
        self.embed_tokens.weight.copy_(e @ axes[:self.shape.d_model].T)

    def hf_tensors(self):
        out = {"model.embed_tokens.weight": self.embed_tokens.weight,
               "model.norm.weight": self.norm}
        for i, layer in enumerate(self.layers):
            for name, p in layer.named_parameters():
                if name.endswith("layernorm"):
                    name += ".weight"
                elif name.startswith(("q_", "k_", "v_", "o_")):
                    name = "self_attn." + name
                else:
                    name = "mlp." + name
                out[f"model.layers.{i}.{name}"] = p
        return {k: v.detach() for k, v in out.items()}


def write_safetensors(path, tensors):
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors):
        t = tensors[name].to(torch.bfloat16).contiguous().cpu()
        blob = t.view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(t.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + b"".join(blobs))


def export(model, directory, tokenizer_json):
    """Writes a Hugging Face directory, weights in bf16."""
    s = model.shape
    os.makedirs(directory, exist_ok=True)
    write_safetensors(f"{directory}/model.safetensors", model.hf_tensors())
    files = {
        "config.json": {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "hidden_size": s.d_model, "num_hidden_layers": s.n_layers,
            "num_attention_heads": s.n_heads,
            "num_key_value_heads": s.n_kv_heads, "head_dim": s.head_dim,
            "intermediate_size": s.d_ff, "vocab_size": s.vocab_size,
            "max_position_embeddings": s.max_positions,
            "rms_norm_eps": s.eps, "rope_theta": s.rope_theta,
            "hidden_act": "silu", "tie_word_embeddings": True,
            "attention_bias": False, "mlp_bias": False,
            "bos_token_id": 0, "eos_token_id": 0, "torch_dtype": "bfloat16"},
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 0},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>",
            "model_max_length": s.max_positions},
    }
    for name, content in files.items():
        with open(f"{directory}/{name}", "w") as f:
            json.dump(content, f, indent=1)
            f.write("\n")
    shutil.copyfile(tokenizer_json, f"{directory}/tokenizer.json")


def save_checkpoint(path, model, optimizers, state):
    temporary = path + ".new"
    torch.save({"shape": asdict(model.shape), "model": model.state_dict(),
                "optimizers": [o.state_dict() for o in optimizers],
                "state": state}, temporary)
    os.replace(temporary, path)


def load_model(path, device="cpu"):
    checkpoint = torch.load(path, map_location=device, weights_only=True)
    model = Llama(Shape(**checkpoint["shape"])).to(device)
    model.load_state_dict(checkpoint["model"])
    return model
