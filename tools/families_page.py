#!/usr/bin/env python3
"""Write docs/families.md: how well the model families of transformers train, from the results of test/e2e/transformers_families.py --save FILE (takes hours for all; resumes after an interruption).

    tools/families_page.py FILE
"""
import argparse
import collections
import json
import os
import re

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
KINDS = {"Language": ("language", "causal"), "Encoders": ("encoder", "masked"), "Encoder and decoder": ("encoder-decoder", "translation", "speech"), "Pictures, sound and other labels": ("vision", "audio", "labels", "ctc"),
         "Series": ("series",), "Outputs under a mean square": ("outputs",), "Modules of our own": ("own",)}
# Pattern of an error → text on the page.
REMEDIES = [
    (r"a training step changes buffer '([^']+)'( and \d+ more)?", r"a training step changes its buffers (`\1`\2), which no file can hold"),
    (r"'model\.([^']+)' draws random numbers \(([^)]*)\)", r"`\1` draws random numbers (\2) beside dropout"),
    (r"GuardOnDataDependent|data-dependent", "its shapes depend on the data"),
    (r"samples apart", "its loss compares samples: no plan can split its batch"),
]


def what_to_do(found):
    """The last column: the reason of a refusal, and the settings with which the family trains."""
    if found["outcome"] == "equal":
        return ""
    check = next((c for c in ("train", "export") if found.get(c, {}).get("outcome") == found["outcome"]), "train")
    part = found[check]
    text = part["remark"].replace("|", "\\|").replace("\n", " ")
    said = next((match.expand(words) for pattern, words in REMEDIES if (match := re.search(pattern, text))), shortened(text))
    if check == "export" and found["train"]["outcome"] == "equal":
        drawn = [name for name in part.get("random", []) if "dropout" not in name and "pdrop" not in name] or part.get("random", [])
        return f"{said}; equal with {', '.join(f'`{name}=0`' for name in drawn)}"
    return said


def outcome(found):
    if found["outcome"] == "equal" and "export" not in found:
        return "equal, without dropout"
    return {"mixes": "refused", "late": "took too long"}.get(found["outcome"], found["outcome"])


def shortened(text):
    """The text of an error without the file name and without general advice."""
    text = re.sub(r"^\S*\.onnx: ", "", text)
    text = re.sub(r"(the file does not train as the module does|PyTorch cannot export the module): ", "", text)
    text = re.sub(r" (Zorse draws the masks|trust=True|This is step).*", "", text)
    text = re.sub(r"\S*/(site-packages/)?(\S+\.(py|onnx))", r"\2", text)
    return text if len(text) <= 180 else text[:177] + "..."


def written(found):
    count = collections.Counter(f["outcome"] for f in found.values())
    freed = sum(f["train"]["outcome"] == "equal" and f["outcome"] == "refused" for f in found.values())
    tried = len(found) - count["not built"]
    lines = ["# Families of transformers", "",
             "One small model of each model type of transformers 5.24, with random weights ([models/hub_families.py](../models/hub_families.py)), exported by `zorse.export` and trained for three steps over three batches in f64,",
             "on one device and under a random plan of three. `tools/families_page.py` writes this page from what `test/e2e/transformers_families.py` finds; nothing here is written by hand.", "",
             f"Of {tried} models {count['equal']} train as in PyTorch, {count['refused'] + count['mixes']} are refused ({freed} of them only with the random parts of their own settings), {count['not exported']} PyTorch's "
             f"exporter does not write, {count['late']} took too long, {count['wrong'] + count['crash']} are wrong or crash. {count['not built']} were not built here. Families that are missing on this page have not been tried.",
             "Rows are as old as their run: `tools/run-evidence.sh transformers_families_match_pytorch` runs some of them again with every state.", "",
             "- **equal**: the losses of all steps (1e-6), the first gradients (1e-5), and parameters and running statistics after the steps (1e-5) are PyTorch's, with dropout 0; where a model makes more of rounding than that, the limit",
             "  is four times what a change of its parameters by 3e-8 makes, at most 1e-2. And the export with the dropout of the family's own",
             "  settings passes the comparison with PyTorch and is imported. **without dropout**: this export was not tried. Models with batch norm train with `--batch-norm-group-size` of the batch; models of text and pictures are given text",
             "  alone where they take it.",
             "- **refused**: the export or the compiler says what it cannot train. **not exported**: PyTorch's exporter fails, in its own words.", ""]
    for title, kinds in KINDS.items():
        rows = {n: f for n, f in sorted(found.items()) if f["kind"] in kinds and f["outcome"] != "not built"}
        if rows:
            lines += [f"## {title}", "", "| family | class | outcome | what to do |", "|---|---|---|---|"]
            lines += [f"| {n.rstrip('*')} | {f['class']} | {outcome(f)} | {what_to_do(f)} |" for n, f in rows.items()]
            lines.append("")
    return lines + not_built(found)


def not_built(found):
    """Families without a model here, by reason."""
    reasons = collections.defaultdict(list)
    for name, f in sorted(found.items()):
        if f["outcome"] == "not built":
            text = f["train"]["remark"]
            library = re.search(r"requires the (\S+) library|No module named '(\S+)'", text)
            reasons[f"needs {library[1] or library[2]}, which is not installed" if library else "takes other inputs than are made here" if re.search(r"missing \d+ required|is not among those|cannot be None|cannot be `None`|must specify|NoneType", text)
                    else "its smallest configuration here is too large" if "smallest configuration" in text else "its configuration does not shrink by the general rules"].append(name)
    lines = ["## Not built", "", "Families of which `models/hub_families.py` makes no small model: nothing is known about them.", ""]
    return lines + [f"- {reason}: {', '.join(names)}" for reason, names in sorted(reasons.items())] if reasons else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE")
    with open(parser.parse_args().file) as f:
        found = {name: f for name, f in json.load(f).items() if "train" in f}  # nothing is known about the others yet
    with open(os.path.join(ROOT, "docs", "families.md"), "w") as f:
        f.write("\n".join(written(found)).rstrip() + "\n")
    print(f"docs/families.md: {len(found)} families")


if __name__ == "__main__":
    main()
