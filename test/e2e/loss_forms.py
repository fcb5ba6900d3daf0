"""Losses as training code writes them, exported from PyTorch and compared with PyTorch in double precision: loss,
gradients and parameters of two steps, on one device and under two plans with uneven cells.

    loss_forms.py [NAME or PREFIX*...] [--batches 4,6,7,16] [--every N] [--random COUNT] [--list]

--random: COUNT random losses (losses/random_losses.py) in addition to the forms, or instead of them with --every 0.

Every form must equal PyTorch, or be refused if losses/forms.py allows it. Exports are kept in out/loss_forms while
the form, the exporter and PyTorch are unchanged. Needs PyTorch (tools/python-env.sh); exit code 77 without it.
"""
import argparse
import fnmatch
import glob
import hashlib
import json
import os
import sys
import tempfile
import warnings

import numpy as np

import harness as z
from losses import judge, random_losses
from losses.forms import REFUSED, all_forms
from losses.table import Table

sys.path.insert(0, os.path.join(z.ROOT, "python"))
KEPT = os.path.join(z.ROOT, "out", "loss_forms")
FIRST_SEED = 100000  # different from the seeds of loss_graphs.py
ROUNDED = 1e-6  # random losses: the exporter writes some of their numbers in f32


def key_of(form):
    """A key that changes with every input of the file and of PyTorch's results."""
    import torch
    from losses import form_module

    text = hashlib.sha256(f"{form.section} {form.text} {torch.__version__}".encode())
    for path in [form_module.__file__, *sorted(glob.glob(os.path.join(z.ROOT, "python", "zorse", "*.py")))]:
        with open(path, "rb") as f:
            text.update(f.read())
    return text.hexdigest()[:16]


def exported(form):
    """(path of the file or None, reason why it was not exported)"""
    from losses import form_module

    path = os.path.join(KEPT, f"{form.name.replace(' ', '_')}-{key_of(form)}.onnx")
    refusal = path[:-5] + ".txt"
    if not os.path.exists(path) and not os.path.exists(refusal):
        for old in glob.glob(os.path.join(KEPT, f"{form.name.replace(' ', '_')}-*")):
            if len(os.path.basename(old)) == len(os.path.basename(path)) or old.endswith(".txt"):
                os.remove(old)
        try:
            form_module.export(form, path + ".part")
            os.replace(path + ".part", path)
        except Exception as error:
            with open(refusal, "w") as f:
                f.write(f"{type(error).__name__}: {error}")
    if os.path.exists(path):
        return path, None
    with open(refusal) as f:
        return None, f.read()


def cases(form, batches):
    """PyTorch's results for every batch size; None for a form that PyTorch cannot train."""
    from losses import form_module

    out = []
    for B in batches:
        try:
            made = form_module.reference(form, B, judge.STEPS)
        except RuntimeError as error:
            if "does not require grad" not in str(error):
                raise
            made = None
        if made is None:
            return None
        out.append(made)
    return out


def verdict_of(form, batches, the_judge, limit):
    path, why = exported(form)
    if path is None:
        return judge.Verdict(judge.REFUSED, "at export: " + " ".join(why.split())[:300])
    known = cases(form, batches)
    if known is None:  # only a refusal is correct
        inputs = {name: np.concatenate([values.numpy()] * judge.STEPS) for name, values in data_for(form, batches[0]).items()}
        verdict = the_judge.judge(path, [judge.Expected(batches[0], inputs, 1.0, [float("nan")] * judge.STEPS, {}, {})], plans=("one",))
        return verdict if verdict.kind == judge.REFUSED else judge.Verdict(judge.WRONG, "it trains, where PyTorch cannot")
    return the_judge.judge(path, known, limit=limit)


def random_forms(count):
    """PyTorch's exporter fixes the number of samples for as_tensor of a size, or makes it a constant."""
    forms = [random_losses.form(seed) for seed in range(FIRST_SEED, FIRST_SEED + count)]
    return [f._replace(expected=REFUSED) if "as_tensor" in f.text else f for f in forms]


def data_for(form, B):
    from losses import form_module

    data = form_module.data_of(B)
    return {name: data[name] for name in form_module.module_of(form).inputs}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--batches", default="4,6,7,16")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--list", action="store_true")
    a = parser.parse_args()
    chosen = [f for f in all_forms().values() if not a.names or any(fnmatch.fnmatch(f.name, n) for n in a.names)]
    chosen = (chosen[::a.every] if a.every else []) + random_forms(a.random)
    if a.list:
        for f in chosen:
            print(f"{f.expected:8} {f.section}, {f.name}: {f.text}")
        return
    try:
        import torch
    except ImportError:
        print("no Python with PyTorch (tools/python-env.sh makes one)")
        sys.exit(77)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.makedirs(KEPT, exist_ok=True)
    forms, drawn = Table(), Table(ROUNDED)
    with tempfile.TemporaryDirectory() as folder:
        the_judge = judge.Judge(folder)
        for form in chosen:
            table = drawn if form.section == "random" else forms
            table.add(form, verdict_of(form, [int(b) for b in a.batches.split(",")], the_judge, table.limit))
    print("; ".join(table.figure(what) for table, what in ((forms, "forms"), (drawn, "random losses")) if table.counts))
    sys.exit(1 if forms.bad or drawn.bad else 0)


if __name__ == "__main__":
    main()
