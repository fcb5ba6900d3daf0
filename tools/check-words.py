#!/usr/bin/env python3
"""Counts banned words in comments, string literals and pages.

    tools/check-words.py            counts per word; fails where a count is above the limit in tools/banned-words.txt
    tools/check-words.py --list RE  prints the places of the words that match RE
    tools/check-words.py --update   lowers the limits to the present counts (they never rise)
"""
import argparse
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tools/banned-words.txt"
CPP = {".cpp", ".h", ".td", ".cu", ".inc", ".proto", ".c"}
HASH = {".sh", ".cmake", ".yaml", ".yml", ".toml"}
SKIPPED = ("test/fuzz/corpus", "docs/adr/", "tools/banned-words.txt", "tools/check-words.py", "LICENSE", "lib/Import/ONNX/schema/")
CPP_TEXT = re.compile(r'//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/|R"(?P<d>[^(\s]*)\((?P<raw>.*?)\)(?P=d)"|"(?P<string>(?:\\.|[^"\\\n])*)"|\'(?:\\.|[^\'\\\n])+\'', re.S)
HASH_TEXT = re.compile(r'(?:^|\s)#(?P<comment>[^\n]*)|"(?P<string>(?:\\.|[^"\\\n])*)"|\'(?P<single>[^\'\n]*)\'')


def texts_of_python(text):
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError, IndentationError):
        yield from enumerate(text.splitlines(), 1)


def texts(path, text):
    """Comments, string literals and prose of a file as (line, text)."""
    suffix = path.suffix
    if suffix == ".py":
        yield from texts_of_python(text)
    elif suffix in CPP or suffix in HASH or path.name == "CMakeLists.txt":
        line = at = 0
        for match in (CPP_TEXT if suffix in CPP else HASH_TEXT).finditer(text):
            line += text.count("\n", at, match.start())
            at = match.start()
            found = next((g for k, g in match.groupdict().items() if k != "d" and g is not None), None)
            if found:
                yield line + 1, found
    elif suffix == ".md":
        yield from enumerate(re.sub(r"```.*?```", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S).splitlines(), 1)


def read_list():
    words = []
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, instead, limit = line.rsplit(" | ", 2)
            words.append((pattern, instead, int(limit.split("#")[0])))
    return words


def find(words):
    """For every word the places (file, line, text) where it occurs."""
    expressions = [re.compile(pattern, re.I) for pattern, _, _ in words]
    places = [[] for _ in words]
    names = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
    for name in names:
        path = ROOT / name
        if not name or name.startswith(SKIPPED) or not path.is_file():
            continue
        if path.suffix not in CPP | HASH | {".py", ".md"} and path.name != "CMakeLists.txt":
            continue
        for line, text in texts(path, path.read_text(errors="replace")):
            for k, expression in enumerate(expressions):
                for match in expression.finditer(text):
                    places[k].append((name, line + text.count("\n", 0, match.start()), " ".join(text.split())[:160]))
    return places


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="RE")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    words = read_list()
    places = find(words)
    if options.list:
        for (pattern, _, _), found in zip(words, places):
            if re.search(options.list, pattern, re.I):
                print(*(f"{name}:{line}: {text}" for name, line, text in found), sep="\n")
        return 0
    if options.update:
        text = LIST.read_text()
        for (pattern, instead, limit), found in zip(words, places):
            text = text.replace(f"{pattern} | {instead} | {limit}", f"{pattern} | {instead} | {min(limit, len(found))}")
        LIST.write_text(text)
    above = 0
    for (pattern, instead, limit), found in zip(words, places):
        if len(found) > limit:
            above += 1
            print(f"'{pattern}': {len(found)} occurrences, limit {limit}; write: {instead}. First: {found[0][0]}:{found[0][1]}: {found[0][2]}")
    print(f"{sum(map(len, places))} banned words in comments, messages and pages (limit {sum(w[2] for w in words)})")
    return above > 0


if __name__ == "__main__":
    sys.exit(main())
