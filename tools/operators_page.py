#!/usr/bin/env python3
"""Writes docs/data/operators.json, the outcomes of ONNX's node cases by operator; tools/docs.py generate makes docs/reference/operators.md of it. (tools/families_page.py: models.)

    tools/operators_page.py [--keep FOLDER]      runs test/unit/import/node_cases.py and node_gradients.py (an hour)

With --keep, existing results in FOLDER (cases.json, gradients.json) are reused, and missing ones are written there.
"""
import argparse
import collections
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile

from tested import commit

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
    return text.strip()[:160]


def share(cases, good):
    """How many of the cases are good, of how many; None without cases."""
    return [sum(c["outcome"] == good for c in cases), len(cases)] if cases else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--without-gradients", action="store_true", help="without gradients")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or temporary
        os.makedirs(folder, exist_ok=True)
        cases = outcomes(folder, "cases", "test/unit/import/node_cases.py", TOOL)
        gradients = {} if given.without_gradients else outcomes(folder, "gradients", "test/unit/import/node_gradients.py", TOOL)

    by_operator = collections.defaultdict(lambda: ([], []))
    for which, found in enumerate((cases, gradients)):
        for name, case in found.items():
            if len(case["operators"]) == 1 and "_expanded" not in name:
                by_operator[case["operators"][0]][which].append({**case, "name": name})
    imported = sum(c["outcome"] == "imported" for c in cases.values())
    matching = sum(c["outcome"] == "matches" for c in gradients.values())
    operators = {}
    for operator, (of_import, of_gradient) in sorted(by_operator.items()):
        refused = [c for c in of_import if c["outcome"] == "refused"] or [c for c in of_gradient if c["outcome"] in ("refused", "bent")]
        operators[operator] = {"imported": share(of_import, "imported"), "gradient": share(of_gradient, "matches"), "remark": reason(refused[0]["remark"]) if refused else ""}
    head = {"commit": commit(), "date": datetime.date.today().isoformat(), "cases": [imported, len(cases)], "gradients": [matching, len(gradients)]}
    with open(os.path.join(ROOT, "docs", "data", "operators.json"), "w") as f:
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in operators.items())
        f.write("{" + ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()) + ', "operators": {\n' + rows + "\n}}\n")
    print(f"docs/data/operators.json: {len(operators)} operators; tools/docs.py generate writes the page")


if __name__ == "__main__":
    main()
