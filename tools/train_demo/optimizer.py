"""Muon for the hidden matrices, AdamW for the rest.

Muon: momentum whose update is orthogonalised by a Newton-Schulz iteration
(Jordan et al., 2024). On small transformers it learns clearly faster per token
than AdamW, which suits a small token budget.
"""
import torch
import torch.distributed as dist


def orthogonalise(g, steps=5):
    """Approximates U V^T of g's singular value decomposition."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    if tall := g.shape[0] > g.shape[1]:
        x = x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return (x.T if tall else x).to(g.dtype)


class Muon(torch.optim.Optimizer):
    """Each process orthogonalises its share of the matrices."""

    def __init__(self, params, lr, momentum=0.95, weight_decay=0.02):
        super().__init__(params, dict(lr=lr, momentum=momentum,
                                      weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            updates = self.updates(group)
            for p, update in zip(group["params"], updates):
                scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * scale)

    def updates(self, group):
        world = dist.get_world_size() if dist.is_initialized() else 1
        rank = dist.get_rank() if world > 1 else 0
        updates = []
        for i, p in enumerate(group["params"]):
            state = self.state[p]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(p)
            m = state["momentum"]
            m.lerp_(p.grad, 1 - group["momentum"])
            if i % world == rank:
                updates.append(orthogonalise(
                    p.grad.lerp(m, group["momentum"])))
            else:
                updates.append(torch.zeros_like(p))
        if world > 1:
            sum_over_processes(updates)
        return updates


def sum_over_processes(tensors):
    """Sums over all processes in one message."""
    flat = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat)
    for t, part in zip(tensors, flat.split([t.numel() for t in tensors])):
        t.copy_(part.view_as(t))


def make_optimizers(model, muon_lr=0.02, adam_lr=3e-3):
    hidden = [p for n, p in model.named_parameters()
              if p.dim() == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters()
            if p.dim() != 2 or "embed" in n]
    optimizers = [Muon(hidden, lr=muon_lr),
                  torch.optim.AdamW(rest, lr=adam_lr, betas=(0.9, 0.95),
                                    weight_decay=0.0)]
    for o in optimizers:
        for g in o.param_groups:
            g["base_lr"] = g["lr"]
    return optimizers


def set_progress(optimizers, progress, warmup=0.02):
    """Linear warm-up, flat to 40 %, then linearly down to 2 %."""
    factor = min(1.0, progress / warmup) if warmup else 1.0
    if progress > 0.4:
        factor = max(0.02, (1.0 - progress) / 0.6)
    for o in optimizers:
        for g in o.param_groups:
            g["lr"] = g["base_lr"] * factor
