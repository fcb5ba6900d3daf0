"""The table of loss forms. The modules next to this file fill it.

Most numbers in forms are powers of two, because PyTorch's exporter writes some numbers in f32.
"""
import collections
import re

Form = collections.namedtuple("Form", "name section expected text")

# Expected result of the compiler for a form:
EXACT = "exact"  # affine in sums over samples, with factors known before the step: equal to PyTorch
CLOSING = "closing"  # depends on several samples, or on a function of their sums: a step's samples become one group, or it is refused
REFUSED = "refused"  # may be refused: its file does not define its meaning

# Names in a text in addition to s, the module: inputs and values computed from them.
NAMES = ("x", "u", "y", "q", "w", "m", "sw", "c", "r", "at")
MADE = {"l": "x", "p": "x", "v": "u"}

FORMS = {}


def names_in(form):
    """The names above that a form uses."""
    used = {name for name in (*NAMES, *MADE, "s") if re.search(rf"(?<![\w.]){name}\b(?! ?=[^=])", form.text)}
    return used | ({"l", "y"} if form.section == "forward" else set())


def forms(section, expected, **texts):
    for name, text in texts.items():
        assert name not in FORMS, name
        FORMS[name] = Form(name, section, expected, text)


def all_forms():
    from losses import forms_counts, forms_mixing, forms_numbers, forms_parameters, forms_positions, forms_reductions  # noqa: F401  fill the table

    return FORMS
