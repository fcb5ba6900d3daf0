"""What forms of losses are: a table that the modules beside this one fill.

Numbers in forms are few powers of two: PyTorch's exporter writes some of them in f32.
"""
import collections
import re

Form = collections.namedtuple("Form", "name section expected text")

# What the compiler has to make of a form:
EXACT = "exact"  # affine in sums over samples, with factors known before the step: equal to PyTorch
CLOSING = "closing"  # samples meet, or a function of their sums: needs a closing unit, and may be refused where there is none
REFUSED = "refused"  # may be refused: its file does not say what it means

# What a text may name beside s, the module: inputs, and what is made of them.
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
