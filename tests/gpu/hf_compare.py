"""Hugging Face transformers on this GPU: what tools/gpu_check compares with.

Prints a JSON object for each measurement, as it goes: seconds of one token at
context 512 of the Llama-3-8B shape with random bf16 weights, eager and compiled
with a static cache; of a prefill of 2,048 tokens; the bf16 matrix rate; and how
far bf16 logits are from fp32 ones on the shape that gpu_tests uses, with weights
drawn as there. One that fails is left out, and makes the exit status 1.
"""
import json
import math
import statistics
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache


def log(message):
    print(message, file=sys.stderr, flush=True)


def median_seconds(work, repeats=15, warm_up=3):
    times = []
    for i in range(repeats + warm_up):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if i >= warm_up:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def matrix_rate(n=8192):
    a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    return 2 * n**3 / median_seconds(lambda: a @ b)


def llama_3_8b():
    config = LlamaConfig(
        hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, intermediate_size=14336, vocab_size=128256,
        max_position_embeddings=8192, rope_theta=500000.0,
        attn_implementation="sdpa")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    return model


def eager_decode(model, context):
    past = model(context, use_cache=True).past_key_values
    token = context[:, :1]

    def step():
        model(token, past_key_values=past, use_cache=True,
              logits_to_keep=1).logits.argmax(-1)
        past.crop(context.shape[1])

    return median_seconds(step)


def compiled_decode(model, context):
    length = context.shape[1]
    cache = StaticCache(config=model.config, max_cache_len=length + 64)
    model(context, past_key_values=cache, use_cache=True,
          cache_position=torch.arange(length, device="cuda"))
    token = context[:, :1].clone()
    position = torch.tensor([length], device="cuda")

    def forward(ids, at):
        return model(ids, past_key_values=cache, use_cache=True,
                     cache_position=at).logits.argmax(-1)

    compiled = torch.compile(forward, mode="reduce-overhead", fullgraph=False)
    return median_seconds(lambda: compiled(token, position), warm_up=5)


def draw_as_gpu_tests(model, layers):
    generator = torch.Generator(device="cuda").manual_seed(5)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            low, half = 1.0, 0.1
        else:
            low, half = 0.0, math.sqrt(3.0 / parameter.shape[1])
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                half /= math.sqrt(2.0 * layers)
        noise = torch.rand(parameter.shape, device="cuda", generator=generator)
        values = low + half * (2.0 * noise - 1.0)
        # As stored: bf16.
        parameter.data.copy_(values.to(torch.bfloat16).to(parameter.dtype))


def bf16_error():
    config = LlamaConfig(
        hidden_size=1024, num_hidden_layers=4, num_attention_heads=16,
        num_key_value_heads=4, intermediate_size=2816, vocab_size=8009,
        max_position_embeddings=2048, rms_norm_eps=1e-5)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).eval()
    draw_as_gpu_tests(model, config.num_hidden_layers)
    tokens = torch.randint(0, config.vocab_size, (1, 150), device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    exact = model(tokens).logits.float()
    # Weights alone: the rotary frequencies stay fp32, as from_pretrained has
    # them.
    kept = [(module, name, buffer) for module in model.modules()
            for name, buffer in module.named_buffers(recurse=False)]
    model.to(torch.bfloat16)
    for module, name, buffer in kept:
        setattr(module, name, buffer)
    rounded = model(tokens).logits.float()
    return ((exact - rounded).abs().max() / exact.abs().max()).item()


def measured(key, work):
    """Prints what `work` returns; False if it fails, as with a version of
    transformers that it was not written for."""
    try:
        print(json.dumps({key: work()}), flush=True)
    except Exception as error:
        log(f"{key}: {type(error).__name__}: {error}")
        return False
    return True


def main():
    good = measured("matrix_tflop_s", lambda: matrix_rate() * 1e-12)
    good &= measured("bf16_logit_error", bf16_error)
    log("model of the 8B shape")
    model = llama_3_8b()
    context = torch.randint(0, 128256, (1, 512), device="cuda")
    prompt = torch.randint(0, 128256, (1, 2048), device="cuda")
    good &= measured("eager_s", lambda: eager_decode(model, context))
    good &= measured("prefill_2048_s", lambda: median_seconds(
        lambda: model(prompt, logits_to_keep=1), repeats=5))
    # Last, because compiling may exceed the time limit.
    log("compiling")
    good &= measured("compiled_s", lambda: compiled_decode(model, context))
    return 0 if good else 1


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
