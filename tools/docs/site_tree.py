"""The tree of pages (docs/navigation.toml), their links, anchors and words. Used by tools/docs.py and docs/conf.py; needs no package."""
import functools
import glob
import os
import re
import tomllib
import urllib.parse

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
DOCS = os.path.join(ROOT, "docs")


@functools.lru_cache(None)
def navigation():
    with open(os.path.join(DOCS, "navigation.toml"), "rb") as f:
        return tomllib.load(f)


def title_of(path):
    """The first heading of a page."""
    with open(os.path.join(DOCS, path)) as f:
        found = re.search(r"^# (.+)$", f.read(), re.M)
    return found[1].strip() if found else os.path.basename(path)


@functools.lru_cache(None)
def sections():
    """Sections with their pages; a section of a folder has the pages that lie in it."""
    found = []
    for section in navigation()["section"]:
        pages = section.get("pages", [])
        if "folder" in section:
            paths = sorted(os.path.relpath(p, DOCS) for p in glob.glob(os.path.join(DOCS, section["folder"], "*.md")))
            pages = [{"title": title_of(p), "path": p, "words": section["words"]} for p in paths]
        found.append({"title": section["title"], "pages": pages})
    return found


def pages():
    """Every page of the tree."""
    found = [navigation()["index"]]

    def add(entries):
        for entry in entries:
            found.append(entry)
            add(entry.get("pages", []))

    for section in sections():
        add(section["pages"])
    return found


def moved_pages():
    """Old name -> new one, both from the root of the repository."""
    with open(os.path.join(DOCS, "data", "pages.toml"), "rb") as f:
        return tomllib.load(f)["pages"]


def redirects():
    """(old, new) of docs/redirects.txt, below docs/."""
    with open(os.path.join(DOCS, "redirects.txt")) as f:
        return [tuple(line.split()) for line in f if line.strip() and not line.startswith("#")]


def without_code(text):
    """A page without fenced blocks and comments; lines stay where they are."""
    def blank(match):
        return "\n" * match[0].count("\n")
    text = re.sub(r"^ *(```+|~~~+).*?^ *\1[ \t]*$", blank, text, flags=re.S | re.M)
    return re.sub(r"<!--.*?-->", blank, text, flags=re.S)


def without_front_matter(text):
    return re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)


def slug(heading):
    """The anchor of a heading, as GitHub and MyST make it."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"<[^>]+>", "", text).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@functools.lru_cache(None)
def anchors(path):
    with open(path) as f:
        text = without_code(f.read())
    found, seen = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)), {}
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.M):
        name = slug(heading)
        found.add(name if name not in seen else f"{name}-{seen[name]}")
        seen[name] = seen.get(name, 0) + 1
    return found


def links(path):
    """(line, target) of every link and image of a page, code left out."""
    with open(path) as f:
        text = without_code(f.read())
    text = re.sub(r"`[^`\n]*`", lambda m: " " * len(m[0]) if "](" not in m[0] else m[0], text)
    patterns = (r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)", r"^\[[^\]]+\]:\s+(\S+)", r"\b(?:src|srcset|href)=\"([^\"]+)\"")
    for pattern in patterns:
        for match in re.finditer(pattern, text, re.M):
            yield text.count("\n", 0, match.start()) + 1, match[1]


def broken_links(path):
    """Messages about links of a page that lead nowhere."""
    problems = []
    for line, target in links(path):
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(name))) if name else path
        where = f"{os.path.relpath(path, ROOT)}:{line}"
        if not os.path.exists(file):
            problems.append(f"{where}: '{target}': there is no {os.path.relpath(file, ROOT)}")
        elif anchor and file.endswith(".md") and anchor not in anchors(file):
            problems.append(f"{where}: '{target}': {os.path.relpath(file, ROOT)} has no heading '#{anchor}'")
    return problems


def word_count(text):
    """Words of prose, headings and tables: without front matter, code blocks, comments, link targets and table rules."""
    text = re.sub(r"<!--.*?-->", " ", without_code(without_front_matter(text)), flags=re.S)
    text = re.sub(r"<[^>]+>", " ", re.sub(r"\]\([^)]*\)", "]", text))
    return sum(1 for word in text.replace("|", " ").split() if re.search(r"\w", word))


def all_pages():
    """Files of pages: README.md, CONTRIBUTING.md and those of the site. At the top of docs/ only index.md is one; others have moved."""
    files = [os.path.join(ROOT, "README.md"), os.path.join(ROOT, "CONTRIBUTING.md")]
    for path in sorted(glob.glob(os.path.join(DOCS, "**", "*.md"), recursive=True)):
        name = os.path.relpath(path, DOCS)
        if (os.sep in name and not name.startswith("rationale" + os.sep)) or name == "index.md":
            files.append(path)
    return files


def code_folders():
    """Folders of the compiler, runtime, tools and tests that contain code, with the README.md of each: its own, or that of a folder above which names it. None: it has none."""
    for top in ("lib", "runtime", "tools", "test", "python"):
        for folder, inside, files in os.walk(os.path.join(ROOT, top)):
            inside[:] = sorted(name for name in inside if not name.startswith((".", "__pycache__")))
            if any(name.endswith((".cpp", ".c", ".h", ".py", ".sh", ".proto")) for name in files):
                yield folder, readme_of(folder)


def readme_of(folder):
    if os.path.exists(os.path.join(folder, "README.md")):
        return os.path.join(folder, "README.md")
    above, parts = folder, []
    while above != ROOT:
        above, name = os.path.split(above)
        parts.insert(0, name)
        readme = os.path.join(above, "README.md")
        if above != ROOT and os.path.exists(readme):
            with open(readme) as f:
                return readme if f"`{parts[0]}`" in f.read() else None
    return None


def readmes():
    """README.md of all folders but the first, which is a page."""
    return sorted({readme for _, readme in code_folders() if readme} | set(glob.glob(os.path.join(ROOT, "*", "README.md"))) - {os.path.join(DOCS, "README.md")})
