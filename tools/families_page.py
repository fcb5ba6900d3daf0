#!/usr/bin/env python3
"""Writes docs/data/models.json, outcomes of the model families of transformers; tools/docs.py generate makes docs/reference/models.md of it. From the results of test/e2e/transformers_families.py --save FILE (takes hours for all; resumes after an interruption).

    tools/families_page.py FILE [--update]     with --update, families that FILE does not contain keep their rows
"""
import argparse
import collections
import datetime
import json
import os
import re

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
VERSION = "5.24"  # of transformers, as test/e2e/transformers_families.py had it
KINDS = {"Language": ("language", "causal"), "Encoders": ("encoder", "masked"), "Encoder and decoder": ("encoder-decoder", "translation", "speech"), "Pictures, sound and other labels": ("vision", "audio", "labels", "ctc"),
         "Series": ("series",), "Outputs under a mean square": ("outputs",), "Modules of our own": ("own",)}
# Pattern of an error → text on the page.
REMEDIES = [
    (r"a training step changes buffer '([^']+)'( and \d+ more)?", r"a training step changes its buffers (`\1`\2), which no file can hold"),
    (r"'model\.([^']+)' draws random numbers \(([^)]*)\)", r"`\1` draws random numbers (\2) in addition to dropout"),
    (r"GuardOnDataDependent|data-dependent", "its shapes depend on the data"),
    (r"samples apart", "its loss compares samples: no plan can split its batch"),
]


def what_to_do(found):
    """The last column: the reason of a refusal, and the settings with which the family trains."""
    if found["outcome"] == "equal":
        return ""
    check = next((c for c in ("train", "export") if found.get(c, {}).get("outcome") == found["outcome"]), "train")
    part = found[check]
    text = part["remark"].replace("\n", " ")
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


def not_built(found):
    """Families without a model here, by reason."""
    reasons = collections.defaultdict(list)
    for name, f in sorted(found.items()):
        if f["outcome"] == "not built":
            text = f["train"]["remark"]
            library = re.search(r"requires the (\S+) library|No module named '(\S+)'", text)
            reasons[f"needs {library[1] or library[2]}, which is not installed" if library else "takes other inputs than are made here" if re.search(r"missing \d+ required|is not among those|cannot be None|cannot be `None`|must specify|NoneType", text)
                    else "its smallest configuration here is too large" if "smallest configuration" in text else "its configuration does not shrink by the general rules"].append(name)
    return dict(sorted(reasons.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--update", action="store_true")
    given, path = parser.parse_args(), os.path.join(ROOT, "docs", "data", "models.json")
    with open(given.file) as f:
        found = {name: f for name, f in json.load(f).items() if "train" in f}  # nothing is known about the others yet
    models = [{"kind": title, "family": name.rstrip("*"), "class": f["class"], "outcome": outcome(f), "remark": what_to_do(f)}
              for title, kinds in KINDS.items() for name, f in sorted(found.items()) if f["kind"] in kinds and f["outcome"] != "not built"]
    left_out, today = not_built(found), datetime.date.today().isoformat()
    head = {"transformers": VERSION, "date": today}
    if given.update:
        with open(path) as f:
            before = json.load(f)
        made = {m["family"]: m for m in models}
        models, left_out = [made.get(m["family"], m) for m in before["models"]], before["not_built"]
        head = {"transformers": VERSION, "date": before["date"], "updated": f"{len(made)} of them on {today}"}
    with open(path, "w") as f:
        f.write("{" + ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()) + ', "models": [\n' + ",\n".join(json.dumps(m, ensure_ascii=False) for m in models)
                + '\n],\n"not_built": {\n' + ",\n".join(f"{json.dumps(why)}: {json.dumps(names)}" for why, names in left_out.items()) + "\n}}\n")
    print(f"docs/data/models.json: {len(found)} families; tools/docs.py generate writes the page")


if __name__ == "__main__":
    main()
