"""Muon: momentum SGD with each matrix replaced by its nearest orthogonal one (Jordan et al., 2024).

Small transformers need clearly fewer tokens than with AdamW for the same loss. Matrices of equal shape are stacked, so the
Newton-Schulz iteration is a few batched products per step.
"""
import torch


def orthogonalize(g, steps=5):
    """Five quintic Newton-Schulz steps on [n, rows, cols]: singular values end near 1."""
    a, b, c = 3.4445, -4.7750, 2.0315
    transposed = g.shape[1] > g.shape[2]
    x = g.transpose(1, 2) if transposed else g
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()  # a rough direction is sufficient
    for _ in range(steps):
        xx = x @ x.transpose(1, 2)
        x = a * x + (b * xx + c * xx @ xx) @ x
    return (x.transpose(1, 2) if transposed else x).to(g.dtype)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            by_shape = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(p.shape, []).append(p)
            for (rows, cols), params in by_shape.items():
                directions = []
                for p in params:
                    m = self.state[p].setdefault("momentum", torch.zeros_like(p))
                    m.lerp_(p.grad, 1 - group["momentum"])
                    directions.append(p.grad.lerp(m, group["momentum"]))
                update = orthogonalize(torch.stack(directions))
                scale = max(1.0, rows / cols) ** 0.5
                for p, u in zip(params, update):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(u, alpha=-group["lr"] * scale)
