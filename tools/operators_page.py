#!/usr/bin/env python3
"""Write docs/operators.md: which operators and models are supported, from ONNX's node cases and the table of models, as they come out here.

    tools/operators_page.py [--keep FOLDER]      runs test/unit/import/node_cases.py, node_gradients.py and test/e2e/breadth_table.py (an hour; needs tools/python-env.sh)

With --keep, outcomes that lie in FOLDER (cases.json, gradients.json, models.json) are used, and those that are missing are put there.
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
KINDS = {"language": "decoders", "encoder": "encoders", "vision": "vision", "audio": "audio", "encoder-decoder": "encoder-decoders", "series": "time series", "own": "own modules"}


def outcomes(folder, name, *words):
    path = os.path.join(folder, name + ".json")
    if not os.path.exists(path):
        subprocess.run([sys.executable, os.path.join(ROOT, words[0]), *words[1:], "--save", path], check=False)
    with open(path) as f:
        return json.load(f)


def reason(text):
    """What was refused and why, without the case's names."""
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
    parser.add_argument("--without-gradients", action="store_true", help="leave them out of the page")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or temporary
        os.makedirs(folder, exist_ok=True)
        cases = outcomes(folder, "cases", "test/unit/import/node_cases.py", TOOL)
        gradients = {} if given.without_gradients else outcomes(folder, "gradients", "test/unit/import/node_gradients.py", TOOL)
        models = outcomes(folder, "models", "test/e2e/breadth_table.py")

    shows = bool(gradients)
    by_operator = collections.defaultdict(lambda: ([], []))
    for which, found in enumerate((cases, gradients)):
        for name, case in found.items():
            if len(case["operators"]) == 1 and "_expanded" not in name:
                by_operator[case["operators"][0]][which].append({**case, "name": name})
    imported = sum(c["outcome"] == "imported" for c in cases.values())
    matching = sum(c["outcome"] == "matches" for c in gradients.values())
    holding = [m for m in models.values() if m["outcome"] == "holds"]
    lines = ["# Operators and models", "",
             "What the importer takes, as ONNX's own cases and a table of models show. `tools/operators_page.py` writes this page; nothing here is written by hand. What is not listed is an error",
             "that names the node ([errors](architecture.md#errors)); how to add an operator is in [extending](extending.md#an-onnx-operator).", "",
             f"- **Cases of single nodes**: {imported} of {len(cases)} that can be wrapped in a model with a loss are imported and have ONNX's results.",
             *([f"- **Gradients**: {matching} of {len(gradients)} cases with operands of floats have gradients that match differences of the loss in double precision; "
             f"{sum(c['outcome'] == 'wrong' for c in gradients.values())} do not."] if shows else []),
             f"- **Models**: {len(holding)} of {len(models)} configurations train to PyTorch's losses (1e-6) and first gradients (1e-5) on one device and under two random plans.", "",
             "## Operators", "",
             "Imported: cases that are imported, of those that can be wrapped." + (" Gradient: cases whose gradients match differences, of those with floats that may be parameters." if shows else "") +
             " Remarks: what is refused first.",
             "An operator all of whose operands must be constants (shapes, bounds, windows) is computed while importing.", "",
             "| operator | imported | gradient | remarks |" if shows else "| operator | imported | remarks |", "|---|---|---|---|" if shows else "|---|---|---|"]
    for operator, (of_import, of_gradient) in sorted(by_operator.items()):
        refused = [c for c in of_import if c["outcome"] == "refused"] or [c for c in of_gradient if c["outcome"] in ("refused", "bent")]
        remark = reason(refused[0]["remark"]) if refused else ""
        lines.append(f"| {operator} | {share(of_import, 'imported')} | " + (f"{share(of_gradient, 'matches')} | " if shows else "") + f"{remark} |")
    lines += ["", "## Models", "",
              "Small configurations with random weights ([models/configurations.py](../models/configurations.py)). Figures are the worst relative errors of two steps' losses and of the first step's gradients.", ""]
    for kind, title in KINDS.items():
        rows = {n: m for n, m in models.items() if m["kind"] == kind}
        if not rows:
            continue
        lines += [f"### {title[0].upper()}{title[1:]}", "", "| model | outcome | remarks |", "|---|---|---|"]
        for name, m in rows.items():
            outcome = {"holds": "trains", "mixes": "refused: mixes samples", "refused": "refused", "fails": "fails", "unwritten": "not exported"}[m["outcome"]]
            lines.append(f"| {name} | {outcome} | {m['remark'] if m['outcome'] == 'holds' else reason(m['remark'])} |")
        lines.append("")
    with open(os.path.join(ROOT, "docs", "operators.md"), "w") as f:
        f.write("\n".join(lines).rstrip() + "\n")
    print(f"docs/operators.md: {len(by_operator)} operators, {len(models)} models")


if __name__ == "__main__":
    main()
