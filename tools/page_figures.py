"""Checks that figures in user documents equal those of the evidence: README.md and docs/**/*.md except docs/internals/results.md.

    page_figures.py             fails if a page and the evidence differ
    page_figures.py --write     writes the evidence's figures into the pages

A figure is enclosed in two comments. The first names its source: a claim of test/evidence and an expression to find in the claim's latest figure (docs/evidence.jsonl; whole runs take
precedence over quick ones).

    GPT-2 124M compiles in <!-- figure compile_time "slowest ([\\d.]+ s)" -->3.43 s<!-- end -->.

The first group of the expression is the figure. A sentence that names a claim must not contain any other measured figure: no number with a decimal point, an exponent, or a unit of time or of ratio.
"""
import argparse
import glob
import json
import os
import re
import sys

import claims as c

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MARKED = re.compile(r'<!-- figure (\w+) "([^"\n]*)" -->(.*?)<!-- end -->', re.S)
BARE = re.compile(r"(?<![\w.])(\d[\d,]*\.\d+(e-?\d+)?|\d+e-\d+|\d[\d,]*(?= (?:s|ms|µs|us|ns|%|×|times|tokens/s)\b))(?![\w-])")


def evidence(path):
    """The latest figure of every claim that passed."""
    figures, failed = {}, set()
    with open(path) as f:
        for line in f:
            row = json.loads(line)
            name = row["script"].removesuffix(".sh")
            if row["state"] != "passed":
                failed.add(name)
            elif name not in figures or row["form"] == "whole":
                figures[name] = row["figure"]
    return {name: figure for name, figure in figures.items() if name not in failed}


def pages(root):
    return [os.path.join(root, "README.md")] + sorted(p for p in glob.glob(os.path.join(root, "docs", "**", "*.md"), recursive=True) if os.path.basename(p) not in ("results.md", "evidence.md", "evidence-remarks.md"))


def figure(name, pattern, figures):
    """Returns the required text of a figure, or None and the reason."""
    if name not in figures:
        return None, f"{name} has not passed: docs/evidence.jsonl has no figure of it. Run tools/run-evidence.sh {name}, or remove the figure"
    try:
        found = re.search(pattern, figures[name])
    except re.error as problem:
        return None, f'"{pattern}" is not a regular expression: {problem}'
    if not found or not found.groups():
        return None, f'"{pattern}" finds nothing in the figure of {name}, which is: {figures[name]}'
    return found.group(1), None


def sentences(text):
    """Sentences with the line number of their beginning; a table row is a sentence."""
    line = 1
    for piece in re.split(r"(?<=[.:!?])\s+(?=[A-Z`*<\[])|\n(?=\||- |\n|#)|(?<=\|)\n", text):
        at = text.find(piece, 0)
        yield text.count("\n", 0, at) + 1 if at >= 0 else line, piece


def check(path, figures, names, write):
    """Returns the problems of a page; with `write` its figures are fixed first."""
    with open(path) as f:
        text = f.read()
    problems = []
    place = lambda at: f"{os.path.relpath(path, ROOT)}:{text.count(chr(10), 0, at) + 1}"

    def mend(match):
        wanted, why = figure(match.group(1), match.group(2), figures)
        if why:
            problems.append(f"{place(match.start())}: {why}")
        elif wanted != match.group(3):
            if write:
                return match.group(0).replace(match.group(3) + "<!-- end -->", wanted + "<!-- end -->")
            problems.append(f"{place(match.start())}: contains {match.group(3)!r}, but {match.group(1)} printed {wanted!r}; tools/page_figures.py --write fixes it")
        return match.group(0)

    mended = MARKED.sub(mend, text)
    if mended != text:
        with open(path, "w") as f:
            f.write(mended)
    for line, sentence in sentences(re.sub(r"```.*?```", lambda m: "\n" * m.group(0).count("\n"), MARKED.sub(lambda m: "\n" * m.group(0).count("\n"), mended), flags=re.S)):
        named = [name for name in re.findall(r"`(?:tools/run-evidence\.sh )?(\w+)`", sentence) if name in names]
        bare = BARE.search(sentence)
        if named and bare:
            problems.append(f"{os.path.relpath(path, ROOT)}:{line}: states {bare.group(0)!r} next to {named[0]}, not taken from the evidence: enclose it in figure comments, or remove it")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--root", default=ROOT)
    a = parser.parse_args()
    figures = evidence(os.path.join(a.root, "docs", "evidence.jsonl"))
    names = {claim.name for claim in c.read(os.path.join(a.root, "test", "evidence", "claims.toml"))}
    problems, count = [], 0
    for path in pages(a.root):
        problems += check(path, figures, names, a.write)
        with open(path) as f:
            count += len(MARKED.findall(f.read()))
    for problem in problems:
        print(problem)
    print(f"{count} figures on pages, {len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
