#!/usr/bin/env python3
"""Write docs/operators.md: the supported operators, from the results of ONNX's node cases. (tools/families_page.py: the supported models.)

    tools/operators_page.py [--keep FOLDER]      runs test/unit/import/node_cases.py and node_gradients.py (an hour)

With --keep, existing results in FOLDER (cases.json, gradients.json) are reused, and missing ones are written there.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
TOOL = os.path.join(ROOT, "build", "release", "bin", "evaluate-onnx")


def outcomes(folder, name, *words):
    path = os.path.join(folder, name + ".json")
    if not os.path.exists(path):
        subprocess.run([sys.executable, os.path.join(ROOT, words[0]), *words[1:], "--save", path], check=False)
    with open(path) as f:
        return json.load(f)


def reason(text):
    """What was refused and why, without names of the case."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"^.*?error: ", "", text)
    text = re.sub(r" ?(This is step|; its operands:).*", "", text)
    text = re.sub(r"^\S*\.onnx: ", "", text)
    text = re.sub(r"^(1 operator is|\d+ operators are) not supported: .*", "is not supported", text)
    text = re.sub(r"^node '[^']*' \(([^)]*)\)[:,]? ?", "", text)
    return text.replace("|", "\\|").strip()[:160]


def share(cases, good):
    return f"{sum(c['outcome'] == good for c in cases)} of {len(cases)}" if cases else "none"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--without-gradients", action="store_true", help="omit gradients from the page")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or temporary
        os.makedirs(folder, exist_ok=True)
        cases = outcomes(folder, "cases", "test/unit/import/node_cases.py", TOOL)
        gradients = {} if given.without_gradients else outcomes(folder, "gradients", "test/unit/import/node_gradients.py", TOOL)

    shows = bool(gradients)
    by_operator = collections.defaultdict(lambda: ([], []))
    for which, found in enumerate((cases, gradients)):
        for name, case in found.items():
            if len(case["operators"]) == 1 and "_expanded" not in name:
                by_operator[case["operators"][0]][which].append({**case, "name": name})
    imported = sum(c["outcome"] == "imported" for c in cases.values())
    matching = sum(c["outcome"] == "matches" for c in gradients.values())
    lines = ["# Operators", "",
             "What the importer takes, as ONNX's own cases show. `tools/operators_page.py` writes this page; nothing here is written by hand. What is not listed is an error",
             "that names the node ([errors](architecture.md#errors)); how to add an operator is in [extending](extending.md#an-onnx-operator). Which models train: [families of transformers](families.md).", "",
             f"- **Cases of single nodes**: {imported} of {len(cases)} that can be wrapped in a model with a loss are imported and have ONNX's results.",
             *([f"- **Gradients**: {matching} of {len(gradients)} cases with operands of floats have gradients that match differences of the loss in double precision; "
             f"{sum(c['outcome'] == 'wrong' for c in gradients.values())} do not."] if shows else []), "",
             "## Operators", "",
             "Imported: cases that are imported, of those that can be wrapped." + (" Gradient: cases whose gradients match differences, of those with floats that may be parameters." if shows else "") +
             " Remarks: what is refused first.",
             "An operator all of whose operands must be constants (shapes, bounds, windows) is computed while importing.", "",
             "| operator | imported | gradient | remarks |" if shows else "| operator | imported | remarks |", "|---|---|---|---|" if shows else "|---|---|---|"]
    for operator, (of_import, of_gradient) in sorted(by_operator.items()):
        refused = [c for c in of_import if c["outcome"] == "refused"] or [c for c in of_gradient if c["outcome"] in ("refused", "bent")]
        remark = reason(refused[0]["remark"]) if refused else ""
        lines.append(f"| {operator} | {share(of_import, 'imported')} | " + (f"{share(of_gradient, 'matches')} | " if shows else "") + f"{remark} |")
    with open(os.path.join(ROOT, "docs", "operators.md"), "w") as f:
        f.write("\n".join(lines).rstrip() + "\n")
    print(f"docs/operators.md: {len(by_operator)} operators")


if __name__ == "__main__":
    main()
