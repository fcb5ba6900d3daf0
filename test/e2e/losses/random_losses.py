"""Random losses over the number of samples, positions, counts of labels and sums of weights, as text that PyTorch and
tapes read. One seed gives one loss.

A loss is a sum of terms. A term is per-token values, weighted and masked, reduced over all samples in one of many
orders, and scaled, before or after the reduction, by numbers that are known before the step.
"""
import random
import re

from losses.forms import CLOSING, EXACT, Form

# Rules: <name> is replaced by a random text of the rule with this name, <e> by the text to which a rule is applied.
RULES = {
    "number": ("l.shape[0]", "y.size(0)", "l.shape[0] * l.shape[1]", "y.numel()", "l.numel()", "q.size(0) * q.size(1)", "l.flatten(0, 1).shape[0]",
               "y.flatten().shape[0]", "y.shape[1]"),
    "count": ("valid(y)", "(y != -100).sum()", "m.sum()", "w.sum()", "sw.sum()", "(m * w).sum()", "w.pow(2).sum()", "(at + 1).sum()", "w.mean()", "w.max()",
              "(m > 0).double().mean()", "(y == 2).sum()", "(y >= 0).sum()", "(m * (y != -100)).sum()", "(w * sw[:, None]).sum()",
              # counts that read counts, and the first sample
              "r.std()", "((sw - sw.mean()) ** 2).sum()", "(w / w.max()).sum()", "(y == y[0, 0]).sum()"),
    "literal": ("2", "0.5", "3", "1.5", "7"),
    "composed": ("(<value> + <scalar>)", "(<value> * <scalar>)", "(<value> + 1)", "(2 * <value>)", "((<value>) ** 0.5)", "(<value> / (<scalar> + 1))",
                 "torch.sqrt(torch.as_tensor(<value>).double())", "torch.clamp(torch.as_tensor(<value>), min=1)", "(1.0 / (<value> + 1))",
                 "torch.log(torch.as_tensor(<value>).double() + 2)", "(<value> - <scalar> + 1024)", "((<value>) * (1 / (<scalar>)))"),
    "per token": ("each(l, y.clamp(min=0))", "each(l, y)", "((l - q) ** 2).mean(-1)", "((l - q) ** 2).sum(-1)", "(torch.logsumexp(l, -1) ** 2)",
                  "F.relu(1 - l[..., 0] * r)", "(l[..., 1] - r).abs()", "(-(q * logp(l)).sum(-1))"),
    "weighted": ("(<e> * m)", "(<e> * w)", "(<e> * (y != -100))", "(<e> * sw[:, None])", "torch.where(m > 0, <e>, 0.0 * w)", "(<e> * (w / w.sum()))",
                 "(<e> / (<scalar>))", "(<e> * (<scalar>))", "<e>.transpose(0, 1).transpose(0, 1)", "(<e> * (1 + 0.125 * s.a))", "(<e> + 0.0)",
                 "(<e> * (1 / (<scalar>)))", "(<e> * F.softmax(sw, 0)[:, None])", "(<e> * F.softmax(w.flatten(), 0).view(-1, T))",
                 "(<e> * ((r - r.mean()) / (r.std() + 1)))", "(<e> * (1 + torch.arange(l.shape[0]) % 3)[:, None])", "(<e> * (y == y[0, 0]))"),
    "reduced": ("<e>.sum()", "<e>.mean()", "<e>.sum(1).mean()", "<e>.mean(1).sum()", "<e>.sum(0).mean()", "<e>.mean(0).sum()", "<e>.flatten().sum()",
                "<e>.reshape(-1).mean()", "(<e>.sum(1) * sw).sum()", "(<e>.sum(1) / m.sum(1).clamp(min=1)).mean()", "torch.stack([<e>.sum(), <e>.mean()]).sum()",
                "<e>[:, :-1].sum()", "(<e>.sum(1) / (<scalar>)).sum()"),
    "scaled": ("<e> / (<scalar>)", "<e> * (<scalar>)", "<e> * (1 / (<scalar>))", "<e> / (<scalar>) / (<scalar>)", "<e> * torch.exp(-s.a)", "-(-<e>)",
               "(<e> + <tokens>.sum()) / (<scalar>)"),
    "sum": ("<e> + (<term>)", "<e> + 0.125 * (<term>)", "<e> + s.body.head.weight.pow(2).sum() * 0.0625", "<e> + 0.0625 * (<scalar>)",
            "<e> + s.a ** 2 / (<scalar>)", "<e> + s.body.first.weight.abs().sum() / (<scalar>)"),
    "mixing": ("(<e>) ** 2", "torch.log(1 + (<e>) ** 2)", "(<e>) / (1 + (<term>) ** 2)", "<e> + (l * l.mean(0)).mean()"),
}


class Writer:
    def __init__(self, seed):
        self.r, self.depth = random.Random(seed), 0

    def rule(self, name, e=""):
        def made(found):
            name = found.group(1)
            return e if name == "e" else getattr(self, name)()

        return re.sub("<(\\w+)>", made, self.r.choice(RULES[name]))

    def repeated(self, name, e, most):
        for _ in range(self.r.randint(0, most)):
            e = f"({self.rule(name, e)})"
        return e

    def value(self):
        """A number that is known before the step; never 0."""
        if self.depth > 2 or self.r.random() < 0.55:
            return self.rule("number" if self.r.random() < 0.55 else "count")
        self.depth += 1
        text = self.rule("composed")
        self.depth -= 1
        return text

    def scalar(self):
        return self.rule("literal") if self.r.random() < 0.08 else self.value()

    def tokens(self):
        return self.repeated("weighted", self.rule("per token"), 2)

    def term(self):
        return self.repeated("scaled", self.rule("reduced", self.tokens()), 2)

    def loss(self):
        e = self.repeated("sum", self.term(), 2)
        return (e, EXACT) if self.r.random() > 0.1 else (self.rule("mixing", e), CLOSING)


def form(seed):
    text, expected = Writer(seed).loss()
    return Form(f"random {seed}", "random", expected, text)
