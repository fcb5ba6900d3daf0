"""Losses built as ONNX graphs and compared with numpy in double precision: loss, gradients and parameters of two steps,
on one device and under two plans with uneven cells. Does not need PyTorch.

    loss_graphs.py forms [NAME or
                                                                                   PREFIX*...] [--every N] [--batches
                                                                                   4,6,7,16]     the forms of
                                                                                   losses/forms.py that a tape can write
    loss_graphs.py random COUNT [--first
                                                                                   SEED] [--batches 4,6,7,16]
                                                                                   random losses
                                                                                   (losses/random_losses.py)

Each loss must be equal, or refused if that is allowed.
"""
import argparse
import fnmatch
import os
import sys
import tempfile

import numpy as np

import harness as z
from losses import judge, random_losses, tape_functions
from losses.forms import REFUSED, all_forms
from losses.table import Table

TRAINED = ("--train", "body.*,other.*,a,b,k")


def chosen(a):
    if a.kind == "random":
        return [random_losses.form(seed) for seed in range(a.first, a.first + int(a.names[0]))]
    return [f for f in all_forms().values() if f.expected != REFUSED and (not a.names or any(fnmatch.fnmatch(f.name, n) for n in a.names))]


def cases(form, batches):
    """(the file, expected results by batch size), or None if a tape does not support the functions of the form."""
    out, files = [], set()
    for B in batches:
        try:
            file, expected = tape_functions.reference(form, B, judge.STEPS)
        except (AttributeError, NameError, TypeError, ValueError, KeyError) as error:
            return None, f"{type(error).__name__}: {error}"
        files.add(file)
        if not np.isfinite(expected.losses).all():
            return None, "not finite"
        out.append(expected)
    if len(files) != 1:
        raise z.Failure(f"{form.name}: the file depends on the number of samples")
    return files.pop(), out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("forms", "random"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--batches", default="4,6,7,16")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    a = parser.parse_args()
    table, batches, left = Table(), [int(b) for b in a.batches.split(",")], 0
    with tempfile.TemporaryDirectory() as folder:
        the_judge, path = judge.Judge(folder, TRAINED), os.path.join(folder, "loss.onnx")
        built = []
        for form in chosen(a):
            file, expected = cases(form, batches)
            if file is None:
                left += 1
            else:
                built.append((form, file, expected))
        for form, file, expected in built[::a.every]:
            with open(path, "wb") as f:
                f.write(file)
            table.add(form, the_judge.judge(path, expected))
    print((f"{left} left out (functions that a tape does not have, or not finite); " if left else "") + table.figure("graphs"))
    sys.exit(1 if table.bad else 0)


if __name__ == "__main__":
    main()
