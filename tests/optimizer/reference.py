"""Reference updates for optimizers_test.cpp: torch.optim where it has the optimizer, else the papers' formulas.

Usage: reference.py CASES RESULTS

CASES is a JSON list of {"name", "optimizer", "dtype", "steps", "shapes", "options"}; RESULTS becomes a JSON object from
the name of a case to its parameters after the last step, each a flat list. Parameters and gradients come from values(),
which optimizers_test.cpp computes in the same way, without rounding.
"""
import json
import sys

import torch


def values(seed, count):
    """Numbers in [-0.5, 0.5) of a linear congruential generator; exact in float64."""
    numbers = []
    state = seed
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2147483648
        numbers.append(state / 2147483648.0 - 0.5)
    return numbers


def tensor(seed, shape, dtype):
    count = 1
    for size in shape:
        count *= size
    return torch.tensor(values(seed, count), dtype=torch.float64).reshape(shape).to(dtype)


class Lamb(torch.optim.Optimizer):
    """You et al., "Large Batch Optimization for Deep Learning" (2020), algorithm 2, with phi the identity."""

    def __init__(self, parameters, lr, betas, eps, weight_decay, excluded):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})
        self.weight_decay, self.excluded, self.t = weight_decay, excluded, 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        group = self.param_groups[0]
        beta_1, beta_2 = group["betas"]
        for index, p in enumerate(group["params"]):
            state = self.state[p]
            m = beta_1 * state.get("m", torch.zeros_like(p)) + (1 - beta_1) * p.grad
            v = beta_2 * state.get("v", torch.zeros_like(p)) + (1 - beta_2) * p.grad**2
            state["m"], state["v"] = m, v
            m_hat, v_hat = m / (1 - beta_1**self.t), v / (1 - beta_2**self.t)
            r = m_hat / (torch.sqrt(v_hat) + group["eps"])
            ratio = 1.0
            if index not in self.excluded:
                r = r + self.weight_decay * p
                if p.norm() > 0 and r.norm() > 0:
                    ratio = p.norm() / r.norm()
            p.copy_(p - group["lr"] * ratio * r)


class Lars(torch.optim.Optimizer):
    """You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks" (2017), algorithm 1."""

    def __init__(self, parameters, lr, momentum, nesterov, trust, eps, weight_decay, excluded):
        super().__init__(parameters, {"lr": lr})
        self.momentum, self.nesterov, self.trust, self.eps = momentum, nesterov, trust, eps
        self.weight_decay, self.excluded = weight_decay, excluded

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        for index, p in enumerate(group["params"]):
            state = self.state[p]
            rate, g = group["lr"], p.grad
            if index not in self.excluded:
                if p.norm() > 0 and g.norm() > 0:
                    rate = rate * self.trust * p.norm() / (g.norm() + self.weight_decay * p.norm() + self.eps)
                g = g + self.weight_decay * p
            step = rate * g
            v = self.momentum * state.get("v", torch.zeros_like(p)) + step
            state["v"] = v
            p.copy_(p - (self.momentum * v + step if self.nesterov else v))


def run(case):
    dtype = getattr(torch, case["dtype"])
    parameters = [tensor(1 + i, shape, dtype).requires_grad_() for i, shape in enumerate(case["shapes"])]
    make = {"LAMB": Lamb, "LARS": Lars}.get(case["optimizer"]) or getattr(torch.optim, case["optimizer"])
    optimizer = make(parameters, **case["options"])
    for step in range(1, case["steps"] + 1):
        for i, p in enumerate(parameters):
            p.grad = tensor(1000 * step + i, case["shapes"][i], dtype)
        parameters[-1].grad.view(-1)[0] = 0.0  # as for a unit that is never active
        optimizer.step()
    return [p.detach().double().flatten().tolist() for p in parameters]


def main():
    torch.set_num_threads(1)
    with open(sys.argv[1]) as file:
        cases = json.load(file)
    results = {case["name"]: run(case) for case in cases}
    with open(sys.argv[2], "w") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main()
