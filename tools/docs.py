#!/usr/bin/env python3
"""The documentation site: builds it, writes its generated pages, and checks it.

    tools/docs.py build                builds the site into build/docs; warnings are errors. Makes a virtual environment with Sphinx if there is none
    tools/docs.py generate [--check]   writes the generated pages; --check: names those that would change, and fails
    tools/docs.py links                checks every relative link and anchor of the pages and of every README.md, the tree of pages and redirects
    tools/docs.py words                prints the words of every page and fails above 115 % of its budget in docs/navigation.toml
    tools/docs.py picture              takes the pictures of a plan's HTML report (docs/figures/plan-report-*.png) with a browser; exit code 77: there is none
    tools/docs.py paths [--write]      lists names of pages that have moved in sources; --write: replaces them by the new ones
"""
import argparse
import difflib
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.join(ROOT, "tools", "docs"))
import generated_pages  # noqa: E402
import site_tree as tree  # noqa: E402

SKIPPED = 77
OVER = 1.15  # a page may exceed its budget by this factor


def sphinx_python():
    """The Python that has Sphinx: $ZORSE_DOCS_PYTHON, or build/docs-venv, which is made. None, and the reason: it cannot be made."""
    if given := os.environ.get("ZORSE_DOCS_PYTHON"):
        return given, ""
    folder = os.path.join(ROOT, "build", "docs-venv")
    python, wanted = os.path.join(folder, "bin", "python"), os.path.join(ROOT, "docs", "requirements.txt")
    stamp = os.path.join(folder, "requirements.txt")
    with open(wanted) as f:
        text = f.read()
    if os.path.exists(stamp):
        with open(stamp) as f:
            if f.read() == text:
                return python, ""
    made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True)
    if made.returncode:
        return None, f"python3 -m venv fails; tools/install.sh installs what it needs\n{made.stdout}{made.stderr}"
    done = subprocess.run([python, "-m", "pip", "install", "-q", "--retries", "1", "--timeout", "20", "-r", wanted], capture_output=True, text=True)
    if done.returncode:
        return None, f"pip cannot install the packages of docs/requirements.txt\n{done.stderr[-1000:]}"
    with open(stamp, "w") as f:
        f.write(text)
    return python, ""


def build(options):
    python, why = sphinx_python()
    if not python:
        print(f"skipped: {why}")
        return SKIPPED
    out = os.path.abspath(options.output or os.path.join(ROOT, "build", "docs"))
    code = subprocess.run([python, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-n", "-d", out + "-doctrees", os.path.join(ROOT, "docs"), out]).returncode
    if code == 0:
        print(f"{os.path.relpath(os.path.join(out, 'index.html'))}")
    return code


def generate(options):
    changed, written = 0, dict(generated_pages.write_all(options.bin))
    for path, text in written.items():
        file = os.path.join(ROOT, "docs", path)
        before = ""
        if os.path.exists(file):
            with open(file) as f:
                before = f.read()
        if before == text:
            continue
        changed += 1
        if options.check:
            print(f"docs/{path} differs from what tools/docs.py generate writes:")
            print("\n".join(list(difflib.unified_diff(before.splitlines(), text.splitlines(), "committed", "generated", lineterm="", n=0))[:20]))
        else:
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "w") as f:
                f.write(text)
            print(f"docs/{path}")
    known = {p["path"] for p in tree.pages() if p.get("generated")}
    for path in sorted(known ^ set(written)):
        changed += 1
        print(f"docs/navigation.toml: {path} is {'not generated' if path in known else 'missing, or not marked as generated'}")
    if options.check and changed:
        print("tools/docs.py generate writes the pages again")
    return int(bool(options.check and changed))


def links(options):
    problems = []
    for path in [*tree.all_pages(), *tree.readmes()]:
        problems += tree.broken_links(path)
    problems += [f"{os.path.relpath(folder, ROOT)}: has code, but no README.md, and the README.md above does not name it in backticks" for folder, readme in tree.code_folders() if not readme]
    known = [page["path"] for page in tree.pages()]
    problems += [f"docs/navigation.toml: there is no docs/{path}" for path in known if not os.path.exists(os.path.join(tree.DOCS, path))]
    problems += [f"docs/navigation.toml: {path} is there twice" for path in sorted(set(known)) if known.count(path) > 1]
    listed = {os.path.join(tree.DOCS, path) for path in known}
    problems += [f"{os.path.relpath(path, ROOT)}: is not in docs/navigation.toml" for path in tree.all_pages() if path.startswith(tree.DOCS + os.sep) and path not in listed]
    for old, new in tree.redirects():
        if not os.path.exists(os.path.join(tree.DOCS, new)):
            problems.append(f"docs/redirects.txt: {old}: there is no docs/{new}")
    problems += [f"docs/data/pages.toml: {old}: there is no {new}" for old, new in tree.moved_pages().items() if not os.path.exists(os.path.join(ROOT, new))]
    for problem in problems:
        print(problem)
    print(f"{sum(1 for path in tree.all_pages() for _ in tree.links(path))} links on {len(tree.all_pages())} pages, {len(problems)} problems")
    return int(bool(problems))


def words(options):
    over, total, budget = [], 0, 0
    for page in tree.pages():
        path = os.path.join(tree.DOCS, page["path"])
        if not os.path.exists(path):
            continue
        with open(path) as f:
            count = tree.word_count(f.read())
        limit = page.get("words")
        if limit:
            total, budget = total + count, budget + limit
            if round(count / limit, 2) > OVER:
                over.append(f"docs/{page['path']}: {count} words, {count / limit:.0%} of its budget of {limit} (limit {OVER:.0%})")
        if not options.quiet:
            print(f"{count:6} {limit or '-':>6} {f'{count / limit:.0%}' if limit else 'generated':>10}  {page['path']}")
    for problem in over:
        print(problem)
    print(f"{total} words by hand of {budget}, {len(over)} pages above their budget")
    return int(bool(over))


def paths(options):
    """Names of moved pages in tracked sources. The pages that tell of the move are left alone."""
    keep = ("docs/data/pages.toml", "docs/redirects.txt", "tools/docs")
    moved = tree.moved_pages()
    pattern = re.compile("|".join(re.escape(old) + r"(?![\w-])" for old in sorted(moved, key=len, reverse=True)))
    tracked = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout.split("\0")
    count = 0
    for name in filter(None, tracked):
        file = os.path.join(ROOT, name)
        if name.startswith(keep) or (name.startswith("docs/") and name.endswith(".md")) or not os.path.isfile(file):
            continue
        try:
            with open(file, encoding="utf-8") as f:
                text = f.read()
        except UnicodeDecodeError:
            continue
        for match in pattern.finditer(text):
            count += 1
            if not options.write:
                print(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]} is now {moved[match[0]]}")
        if options.write and pattern.search(text):
            with open(file, "w", encoding="utf-8") as f:
                f.write(pattern.sub(lambda m: moved[m[0]], text))
            print(name)
    print(f"{count} names of moved pages{' replaced' if options.write else ''}")
    return int(bool(count and not options.write))


def picture(options):
    import browser
    import report_picture
    if not browser.program():
        print("skipped: no browser is installed (tools/install.sh --browser)")
        return SKIPPED
    for path in report_picture.take(options.bin):
        print(os.path.relpath(path))
    return 0


def main():
    parser = argparse.ArgumentParser(prog="tools/docs.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name, run):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        return command

    add("build", build).add_argument("-o", "--output", help="folder of the site (default: build/docs)")
    command = add("generate", generate)
    command.add_argument("--check", action="store_true", help="change nothing; fail if a page would change")
    for command in (command, add("picture", picture)):
        command.add_argument("--bin", default=os.environ.get("ZORSE_BIN", os.path.join(ROOT, "build", "release", "bin")), help="folder of the built tools")
    add("links", links)
    add("words", words).add_argument("--quiet", action="store_true", help="print only pages above their budget")
    add("paths", paths).add_argument("--write", action="store_true", help="replace old names")
    options = parser.parse_args()
    sys.exit(options.run(options))


if __name__ == "__main__":
    main()
