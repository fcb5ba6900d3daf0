"""Random losses over the number of samples, positions, counts of labels and sums of weights, as text that PyTorch and tapes read. One seed is one loss.

A loss is a sum of terms. A term is per-token values, weighted and masked, reduced over all samples in one of many orders, and scaled by numbers that are known before the step: before the reduction or behind it.
"""
import random

from losses.forms import CLOSING, EXACT, Form

NUMBERS = ("l.shape[0]", "y.size(0)", "l.shape[0] * l.shape[1]", "y.numel()", "l.numel()", "q.size(0) * q.size(1)", "l.flatten(0, 1).shape[0]", "y.flatten().shape[0]", "y.shape[1]")
COUNTS = ("valid(y)", "(y != -100).sum()", "m.sum()", "w.sum()", "sw.sum()", "(m * w).sum()", "w.pow(2).sum()", "(at + 1).sum()", "(m > 0).double().mean()", "w.mean()", "(y == 2).sum()", "(y >= 0).sum()",
          "(m * (y != -100)).sum()", "w.max()", "(w * sw[:, None]).sum()")
TOKENS = ("each(l, y.clamp(min=0))", "each(l, y)", "((l - q) ** 2).mean(-1)", "torch.logsumexp(l, -1) ** 2", "F.relu(1 - l[..., 0] * r)", "(l[..., 1] - r).abs()", "-(q * logp(l)).sum(-1)", "((l - q) ** 2).sum(-1)")
LITERALS = ("2", "0.5", "3", "1.5", "7")


class Writer:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *options):
        return self.r.choice(options)

    def scalar(self, depth=0):
        """A number that is known before the step; never 0."""
        k = self.r.random()
        if depth > 2 or k < 0.5:
            return self.pick(*(NUMBERS if self.r.random() < 0.55 else COUNTS))
        if k < 0.58:
            return self.pick(*LITERALS)
        a, b = self.known(depth + 1), self.scalar(depth + 1)
        return self.pick(f"({a} + {b})", f"({a} * {b})", f"({a} + 1)", f"(2 * {a})", f"(({a}) ** 0.5)", f"({a} / ({b} + 1))", f"torch.sqrt(torch.as_tensor({a}).double())",
                         f"torch.clamp(torch.as_tensor({a}), min=1)", f"torch.log(torch.as_tensor({a}).double() + 2)", f"(1.0 / ({a} + 1))", f"({a} - {b} + 1024)", f"(({a}) * (1 / ({b})))")

    def known(self, depth):
        """Not a literal: the operand whose methods are called."""
        text = self.scalar(depth)
        return self.pick(*NUMBERS) if text in LITERALS else text

    def tokens(self):
        e = self.pick(*TOKENS)
        for _ in range(self.r.randint(0, 2)):
            e = self.pick(f"({e} * m)", f"({e} * w)", f"({e} * (y != -100))", f"({e} * sw[:, None])", f"torch.where(m > 0, {e}, 0.0 * w)", f"({e} * (w / w.sum()))", f"({e} / ({self.scalar(1)}))",
                          f"({e} * ({self.scalar(1)}))", f"({e}).transpose(0, 1).transpose(0, 1)", f"({e} * (1 + 0.125 * s.a))", f"({e} + 0.0)", f"({e} * (1 / ({self.scalar(2)})))")
        return e

    def term(self):
        e = self.tokens()
        e = self.pick(f"({e}).sum()", f"({e}).mean()", f"({e}).sum(1).mean()", f"({e}).mean(1).sum()", f"({e}).sum(0).mean()", f"({e}).mean(0).sum()", f"({e}).flatten().sum()", f"({e}).reshape(-1).mean()",
                      f"(({e}).sum(1) * sw).sum()", f"(({e}).sum(1) / m.sum(1).clamp(min=1)).mean()", f"torch.stack([({e}).sum(), ({e}).mean()]).sum()", f"({e})[:, :-1].sum()", f"(({e}).sum(1) / ({self.scalar(1)})).sum()")
        for _ in range(self.r.randint(0, 2)):
            e = self.pick(f"{e} / ({self.scalar()})", f"{e} * ({self.scalar()})", f"{e} * (1 / ({self.scalar()}))", f"({e}) / ({self.scalar()}) / ({self.scalar()})", f"{e} * torch.exp(-s.a)", f"-(-({e}))", f"({e} + ({self.tokens()}).sum()) / ({self.scalar()})")
        return e

    def loss(self):
        e = self.term()
        for _ in range(self.pick(0, 0, 1, 2)):
            e = self.pick(f"({e}) + ({self.term()})", f"({e}) + 0.125 * ({self.term()})", f"({e}) + s.body.head.weight.pow(2).sum() * 0.0625", f"({e}) + 0.0625 * ({self.scalar()})",
                          f"({e}) + s.a ** 2 / ({self.scalar()})", f"({e}) + s.body.first.weight.abs().sum() / ({self.scalar()})")
        k = self.r.random()
        if k > 0.1:
            return e, EXACT
        return self.pick(f"({e}) ** 2", f"torch.log(1 + ({e}) ** 2)", f"({e}) / (1 + ({self.term()}) ** 2)", f"({e}) + (l * l.mean(0)).mean()"), CLOSING


def form(seed):
    text, expected = Writer(seed).loss()
    return Form(f"random {seed}", "random", expected, text)
