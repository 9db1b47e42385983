#!/usr/bin/env python3
"""Makes tiny random checkpoints and the logits that transformers gives them.

One folder for each model family and option that the engine supports. Each
holds a Hugging Face checkpoint (config.json, generation_config.json, one
safetensors file or shards) and golden.safetensors with `prompt` [tokens] and
`logits` [tokens, vocab], computed in fp32 on the CPU from the checkpoint as it
lies on disk. Needs torch, transformers and safetensors; run from anywhere:

    python3 make_goldens.py

A variant that names a `without` list is also run with that option taken away,
and the script fails if the logits hardly change: a golden must be able to tell.
"""

import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
BASE = {
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 72,
    "max_position_embeddings": 128,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
LLAMA3_ROPE = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}

# name: (model_type, storage, changes to BASE, old rotary layout?, shard bytes,
#        options to take away for the sensitivity check)
VARIANTS = {
    "llama_plain_fp32": ("llama", "float32", {}, False, None, []),
    "llama_old_layout": (
        "llama", "bfloat16", {"rope_theta": 500.0}, True, None,
        ["rope_theta"]),
    "llama_gqa_bf16": (
        "llama", "bfloat16", {"num_key_value_heads": 2}, False, None, []),
    "llama_mqa_fp16": (
        "llama", "float16", {"num_key_value_heads": 1}, False, None, []),
    "llama_head_dim": (
        "llama", "bfloat16", {"head_dim": 12, "num_key_value_heads": 2},
        False, None, []),
    "llama_tied": (
        "llama", "bfloat16", {"tie_word_embeddings": True}, False, None, []),
    "llama_llama3_rope": (
        "llama", "bfloat16",
        {"num_key_value_heads": 2, "rope_theta": 300.0,
         "rope_scaling": {"rope_type": "llama3", **LLAMA3_ROPE}},
        False, None, ["rope_scaling"]),
    "llama_llama3_rope_old_layout": (
        "llama", "bfloat16",
        {"rope_theta": 300.0, "head_dim": 16, "num_key_value_heads": 2,
         "rope_scaling": {"rope_type": "llama3", **LLAMA3_ROPE}},
        True, None, ["rope_scaling"]),
    "llama_linear_rope": (
        "llama", "bfloat16",
        {"rope_scaling": {"type": "linear", "factor": 3.0}},
        True, None, ["rope_scaling"]),
    "llama_biases": (
        "llama", "bfloat16",
        {"attention_bias": True, "mlp_bias": True}, False, None, []),
    "llama_sharded": (
        "llama", "bfloat16", {"num_hidden_layers": 3}, False, 12_000, []),
    "mistral": (
        "mistral", "bfloat16",
        {"num_key_value_heads": 2, "sliding_window": None,
         "rope_theta": 1000.0}, False, None, []),
    "mistral_head_dim": (
        "mistral", "float16",
        {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 128,
         "rope_theta": 1000.0}, True, None, []),
    "qwen2": (
        "qwen2", "bfloat16", {"num_key_value_heads": 2}, True, None, []),
    "qwen2_tied": (
        "qwen2", "bfloat16",
        {"num_key_value_heads": 1, "tie_word_embeddings": True,
         "use_sliding_window": False, "max_window_layers": 1}, False, None,
        []),
    "qwen3": (
        "qwen3", "bfloat16",
        {"num_key_value_heads": 2, "head_dim": 16, "rope_theta": 1000.0},
        True, None, []),
    "qwen3_bias_tied": (
        "qwen3", "bfloat16",
        {"num_key_value_heads": 2, "head_dim": 8, "attention_bias": True,
         "tie_word_embeddings": True}, False, None, []),
}


def randomise(model, generator):
    """Weights large enough that attention, rope, norms and biases all matter."""
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("norm.weight"):
                tensor.copy_(1.0 + 0.2 * noise)
            elif tensor.dim() == 1:
                tensor.copy_(0.3 * noise)
            else:
                gain = 1.8 if ("q_proj" in name or "k_proj" in name) else 1.0
                tensor.copy_(noise * gain / tensor.shape[1] ** 0.5)


def to_old_layout(folder, fields):
    """Rewrites config.json with rope_theta and rope_scaling, as older
    transformers wrote it."""
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    config.pop("rope_parameters", None)
    config["rope_theta"] = fields.get("rope_theta", 10000.0)
    config["rope_scaling"] = fields.get("rope_scaling")
    config["torch_dtype"] = config.pop("dtype", None)
    with open(path, "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")


def logits_of(folder, prompt, config=None):
    model = AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32,
        attn_implementation="eager")
    model.eval()
    with torch.no_grad():
        return model(prompt.unsqueeze(0)).logits[0].float().contiguous()


def check_sensitivity(name, folder, prompt, logits, without):
    """Fails if `without` could be dropped from the config unnoticed."""
    for option in without:
        config = AutoConfig.from_pretrained(folder)
        parameters = dict(config.rope_parameters)
        if option == "rope_scaling":
            parameters = {"rope_type": "default",
                          "rope_theta": parameters["rope_theta"]}
        else:
            parameters["rope_theta"] = 10000.0
        config.rope_parameters = parameters
        other = logits_of(folder, prompt, config)
        change = ((other - logits).abs().max() / logits.abs().max()).item()
        if change < 0.02:
            raise SystemExit(f"{name}: {option} changes logits by {change:.2g}")


def make(name, seed):
    model_type, storage, changes, old_layout, shard_bytes, without = (
        VARIANTS[name])
    fields = {**BASE, **changes}
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)

    generator = torch.Generator().manual_seed(seed)
    config = AutoConfig.for_model(model_type, **json.loads(json.dumps(fields)))
    model = AutoModelForCausalLM.from_config(config)
    randomise(model, generator)
    model = model.to(getattr(torch, storage))
    model.config.dtype = getattr(torch, storage)
    model.save_pretrained(
        folder, max_shard_size=shard_bytes if shard_bytes else "1GB")
    if old_layout:
        to_old_layout(folder, fields)

    length = 40 if "rope" in name else 28
    prompt = torch.randint(
        3, fields["vocab_size"], (length,), generator=generator)
    prompt[0] = 1
    logits = logits_of(folder, prompt)
    assert torch.isfinite(logits).all()
    check_sensitivity(name, folder, prompt, logits, without)
    save_file({"prompt": prompt.to(torch.int32), "logits": logits},
              os.path.join(folder, "golden.safetensors"))
    assert load_file(os.path.join(folder, "golden.safetensors"))
    print(f"{name}: max |logit| {logits.abs().max():.3f}")


def main():
    torch.manual_seed(0)
    for seed, name in enumerate(VARIANTS, start=1):
        make(name, seed)


if __name__ == "__main__":
    main()
