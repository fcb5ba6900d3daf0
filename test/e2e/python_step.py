"""zorse.compile of a module: its step(batch) trains as PyTorch's loop does, with batches that depend on earlier losses. A run that is closed and continued has the
bits of one that is not. A mistake in a batch loses no step (exit code 77 without PyTorch).
"""
import copy
import os
import sys
import tempfile
import time
import warnings

import harness as z
from python_package_torch import ensure_torch

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))
ensure_torch()
import numpy as np  # noqa: E402
import torch  # noqa: E402
import zorse  # noqa: E402
from python_kinds import causal  # noqa: E402

STEPS, BATCH, LIMIT = 12, 6, 1e-5  # relative, f32


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = torch.nn.Linear(5, 16), torch.nn.Linear(16, 1)

    def forward(self, x, y):
        return ((self.second(torch.tanh(self.first(x))) - y) ** 2).mean()


def batch(number):
    random = np.random.default_rng(number)
    x = random.standard_normal((BATCH, 5)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(np.sin(x.sum(1, keepdims=True)))


def adamw(module):
    return torch.optim.AdamW(module.parameters(), lr=0.02, weight_decay=0.1)


def holds(results, what, good, found=""):
    print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good else f": {found}"), flush=True)
    results.append(bool(good))


def chosen(loss, step):
    """The number of a batch that depends on the loss of the step before."""
    return 100 * step + (0 if loss is None or loss > 0.5 else 1)


def loop(module, step_of):
    """Trains with batches that depend on losses. Returns the losses."""
    losses = [None]
    for step in range(STEPS):
        losses.append(step_of(batch(chosen(losses[-1], step))))
    return losses[1:]


def in_pytorch(module):
    optimizer = adamw(module)

    def step(given):
        optimizer.zero_grad()
        loss = module(*given)
        loss.backward()
        optimizer.step()
        return loss.item()

    return loop(module, step)


def equal(a, b):
    return max(z.relative(p.detach().numpy(), q.detach().numpy()) for p, q in zip(a.parameters(), b.parameters()))


def trains(results, cluster):
    theirs, ours, parts = (copy.deepcopy(m) for m in [Regression()] * 3)
    expected = in_pytorch(theirs)
    with zorse.compile(ours, optimizer=adamw(ours), cluster=cluster, quiet=True) as trainer:
        begin = time.monotonic()
        found = loop(ours, lambda given: trainer.step(given).loss)
        seconds = time.monotonic() - begin
    results.append(z.check("losses of steps whose batches depend on them", z.relative(found, expected), LIMIT))
    results.append(z.check("the module has the trained parameters", equal(ours, theirs), LIMIT))
    again = zorse.compile(parts, optimizer=adamw(parts), cluster=cluster, quiet=True)
    count = 0

    def step(given):
        nonlocal count
        count += 1
        if count in (4, 9):
            again.close()
        return again.step(*[given] if count % 2 else [], **{} if count % 2 else dict(zip("xy", given))).loss

    mixed = loop(parts, step)
    again.close()
    holds(results, "a run that is closed and continued has the same bits", mixed == found and equal(parts, ours) == 0, f"{mixed} {found}")
    print(f"     {STEPS} steps with export and compilation: {seconds:.1f} s")


def language_model(results, cluster):
    module, data = causal()
    theirs, rows = copy.deepcopy(module), {name: torch.from_numpy(value) for name, value in data.items()}
    optimizer, expected = adamw(theirs), []
    part = lambda step: {name: value[(step % 4) * BATCH:(step % 4 + 1) * BATCH] for name, value in rows.items()}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = theirs(**part(step)).loss
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    with zorse.compile(module, optimizer=adamw(module), cluster=cluster, quiet=True) as trainer:
        found = [trainer.step(part(step)).loss for step in range(STEPS)]
        begin = time.monotonic()
        for step in range(50):
            trainer.step(part(step))
        each, own = (time.monotonic() - begin) / 50, trainer.step(part(0)).seconds
    results.append(z.check("a causal language model of transformers", z.relative(found, expected), LIMIT))
    print(f"     {1e3 * each:.1f} ms per step, {1e3 * own:.1f} ms of them in the run")


def two_optimizers(results, cluster):
    """Muon for the matrices that the caller chooses, and AdamW for all others."""
    sys.path.insert(0, os.path.join(z.ROOT, "models"))
    import make_optimizers  # Muon in the type of the parameters instead of bf16

    assert torch.optim._muon._zeropower_via_newtonschulz is make_optimizers.orthogonalized
    torch.manual_seed(4)
    module = make_optimizers.Deep()
    theirs, ids = copy.deepcopy(module), np.random.default_rng(5).integers(0, 16, (STEPS, BATCH, 7))

    def optimizers(given):
        matrices = [p for name, p in given.named_parameters() if name in ("wide.weight", "square.weight")]
        others = [p for name, p in given.named_parameters() if name not in ("wide.weight", "square.weight", "norm.bias")]
        return [torch.optim.AdamW([{"params": others[:2], "lr": 0.01}, {"params": others[2:], "weight_decay": 0.0}], lr=0.02, betas=(0.8, 0.99)),
                torch.optim.Muon(matrices, lr=0.03, weight_decay=0.2, momentum=0.9, nesterov=False)]

    given, expected = [(torch.from_numpy(row[:, :6]), torch.from_numpy(row[:, 1:])) for row in ids], []
    reference = optimizers(theirs)
    for one in given:
        theirs.zero_grad()
        loss = theirs(*one)
        loss.backward()
        for optimizer in reference:
            optimizer.step()
        expected.append(loss.item())
    with zorse.compile(module, optimizer=optimizers(module), cluster=cluster, quiet=True) as trainer:
        found = [trainer.step(one).loss for one in given]
    results.append(z.check("[AdamW, Muon] with groups: losses", z.relative(found, expected), LIMIT))
    results.append(z.check("[AdamW, Muon] with groups: parameters", max(float((p - q).abs().max()) for p, q in zip(module.parameters(), theirs.parameters())), LIMIT))
    refuses(results, "another pair of optimizers", "[torch.optim.Muon, torch.optim.AdamW]", lambda: zorse.train(module, given, max_steps=1, global_batch_size=BATCH,
                                                                                                              optimizer=[adamw(module), adamw(module)]))


def refuses(results, what, text, call):
    try:
        call()
    except (zorse.ZorseError, TypeError) as error:
        holds(results, f"{what} is refused", text in str(error), str(error))
    else:
        holds(results, f"{what} is refused", False, "it was not")


def mistakes(results, cluster):
    module = Regression()
    trainer = zorse.compile(module, optimizer=adamw(module), cluster=cluster, quiet=True, max_steps=4)
    x, y = batch(0)
    trainer.step((x, y))
    refuses(results, "another number of samples", "expected the shapes of the first batch", lambda: trainer.step((x[:4], y[:4])))
    refuses(results, "an unknown input", "none of its columns", lambda: trainer.step({"z": x}))
    refuses(results, "a missing input", "expected the shapes of the first batch", lambda: trainer.step({"x": x}))
    for _ in range(3):
        last = trainer.step((x, y))
    holds(results, "the run continues after mistakes", last.step == 4, last)
    refuses(results, "a step after max_steps", "max_steps", lambda: trainer.step((x, y)))
    refuses(results, "a decay without an end", "expected max_steps", lambda: zorse.compile(module, lr_scheduler_type="cosine"))
    refuses(results, "an option of modules for a file", "is for PyTorch modules", lambda: zorse.compile("model.onnx", "bundle", max_steps=3))
    tokens, data = causal()
    trainer = zorse.compile(tokens, lr=1e-3, cluster=cluster, quiet=True)
    good = {name: torch.from_numpy(value[:BATCH]) for name, value in data.items()}
    bad = {**good, "input_ids": good["input_ids"] + 1000}
    expected = tokens(**good).loss.item()
    refuses(results, "an id that is out of range, before any step", "index out of range", lambda: trainer.step(bad))
    results.append(z.check("the first step after it", z.relative([trainer.step(good).loss], [expected]), LIMIT))
    refuses(results, "an id that is out of range", "expects values in", lambda: trainer.step(bad))
    with torch.no_grad():
        expected = tokens(**good).loss.item()
    results.append(z.check("the module has the parameters of the steps before it, and the run continues", z.relative([trainer.step(good).loss], [expected]), LIMIT))
    holds(results, "the number of the step after a batch that ended the run", (last := trainer.step(good)).step == 3, last)


def main():
    warnings.filterwarnings("ignore")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        cluster = z.cluster(folder, [("a", 3e9), ("b", 1e9), ("c", 2e9)])
        trains(results, cluster)
        language_model(results, cluster)
        two_optimizers(results, cluster)
        mistakes(results, cluster)
    z.finish(results)


if __name__ == "__main__":
    main()
