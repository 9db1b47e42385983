"""The output layer and its loss in one step, a few rows at a time.

The logits of a batch (8,192 rows x 4,096 ids in fp32) are larger than any
cache. Here each chunk's gradient is computed while its logits are still in the
cache, and neither is ever materialised as a whole.
"""
import torch


def _gradient_to_ids(logits, wanted, scale):
    """Summed cross entropy, and d(loss * scale)/d(logits)."""
    logits = logits.float()
    normaliser = logits.logsumexp(1, keepdim=True)
    picked = logits.gather(1, wanted[:, None])
    ids = torch.arange(logits.shape[1], device=logits.device)
    hot = (ids[None, :] == wanted[:, None]).float()
    gradient = ((logits - normaliser).exp() - hot) * scale
    return (normaliser - picked).sum(), gradient.bfloat16()


def _gradient_to_teacher(logits, teacher, scale):
    """Summed KL(teacher || student), and its gradient as above."""
    student = logits.float().log_softmax(1)
    teacher = teacher.float().log_softmax(1)
    p = teacher.exp()
    gradient = (student.exp() - p) * scale
    return (p * (teacher - student)).sum(), gradient.bfloat16()


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, embedding, wanted, gradient_of, chunk):
        rows = hidden.shape[0]
        x, e = hidden.bfloat16(), embedding.bfloat16()
        d_hidden = torch.empty_like(x)
        d_embedding = torch.zeros_like(embedding, dtype=torch.float32)
        loss = torch.zeros((), device=x.device)
        for begin in range(0, rows, chunk):
            part = slice(begin, begin + chunk)
            value, gradient = gradient_of(x[part] @ e.T, wanted(part),
                                          1.0 / rows)
            loss += value
            d_hidden[part] = gradient @ e
            d_embedding += (gradient.T @ x[part]).float()
        ctx.save_for_backward(d_hidden, d_embedding)
        return loss / rows

    @staticmethod
    def backward(ctx, upstream):
        d_hidden, d_embedding = ctx.saved_tensors
        return (d_hidden.float() * upstream, d_embedding * upstream, None,
                None, None)


class Loss:
    """Mean nats per token: against the text, or from a teacher."""

    def __init__(self, compiled, chunk=512):
        wrap = torch.compile if compiled else lambda f: f
        self.to_ids = wrap(_gradient_to_ids)
        self.to_teacher = wrap(_gradient_to_teacher)
        self.chunk = chunk

    def __call__(self, model, body, teacher, ids):
        x, y = ids[:, :-1], ids[:, 1:].reshape(-1)
        hidden = body(x)
        hidden = hidden.reshape(-1, hidden.shape[-1])
        wanted, gradient_of = (lambda part: y[part]), self.to_ids
        if teacher is not None:
            with torch.no_grad():
                theirs = teacher.body(x).bfloat16()
                theirs = theirs.reshape(-1, theirs.shape[-1])
                table = teacher.embed_tokens.weight.bfloat16().T
            wanted = lambda part: theirs[part] @ table
            gradient_of = self.to_teacher
        return _Head.apply(hidden, model.embed_tokens.weight, wanted,
                           gradient_of, self.chunk)
