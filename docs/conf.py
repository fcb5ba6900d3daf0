"""Settings of the documentation site: Sphinx, MyST (Markdown) and Furo. tools/docs.py build uses them; docs/navigation.toml holds the tree of pages."""
import glob
import os
import re
import shutil
import sys
import tomllib

DOCS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(DOCS)
sys.path.insert(0, os.path.join(ROOT, "tools", "docs"))
import site_tree  # noqa: E402
from pygments.lexers.special import TextLexer  # noqa: E402

project = "Zorse"
author = "The Zorse authors"
copyright = "The Zorse authors"  # noqa: A001
with open(os.path.join(ROOT, "CMakeLists.txt")) as f:
    version = release = re.search(r"project\(Zorse VERSION ([0-9.]+)", f.read())[1]

extensions = ["myst_parser", "sphinxext.rediraffe"]
myst_heading_anchors = 4
source_suffix = {".md": "markdown"}
root_doc = "index"
# Pages live in folders; a page at the top is one that has moved.
exclude_patterns = ["rationale/*", "examples/*", "data/*"] + [os.path.basename(p) for p in glob.glob(os.path.join(DOCS, "*.md")) if os.path.basename(p) != "index.md"]
nitpicky = True
language = "en"
highlight_language = "none"

html_theme = "furo"
html_title = f"Zorse {release}"
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["zorse.css"]
html_search_scorer = os.path.join(DOCS, "_static", "scorer.js")
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
rediraffe_redirects = {old: new for old, new in site_tree.redirects() if os.path.exists(os.path.join(DOCS, new))}


def toctree(entries, caption=None, depth=1):
    """A hidden table of contents, in MyST's words. Pages that do not exist are left out: tools/docs.py links names them."""
    there = [e for e in entries if os.path.exists(os.path.join(DOCS, e["path"]))]
    lines = ["```{toctree}", ":hidden:", f":maxdepth: {depth}"] + ([f":caption: {caption}"] if caption else []) + [""]
    return "\n".join(lines + [f"{e['title']} </{e['path'].removesuffix('.md')}>" for e in there] + ["```", ""]) if there else ""


def choose_pictures(text):
    """Pictures with a light and a dark source: the theme shows the one of its color scheme, also if the reader has chosen it with the button."""
    return re.sub(r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*<img src="([^"]+)"([^>]*)>\s*</picture>', r'<img class="only-light" src="\2"\3>\n<img class="only-dark" src="\1"\3>', text)


def add_contents(app, docname, source):
    """Adds the contents to index.md and to pages that have pages below them; takes links out that lead out of docs/, as the site has no page for them."""
    text = choose_pictures(source[0])
    if docname == "index":
        text += "\n\n" + "\n".join(toctree(section["pages"], section["title"], 2) for section in site_tree.sections())
    else:
        text += "".join("\n\n" + toctree(page["pages"]) for page in site_tree.pages() if page.get("pages") and page["path"] == docname + ".md")
    here = os.path.dirname(docname)

    def keep(match):
        target = match[2].split("#")[0]
        if re.match(r"[a-z]+:|#", match[2]) or not os.path.relpath(os.path.join(DOCS, here, target), DOCS).startswith(".."):
            return match[0]
        return match[1]

    parts = re.split(r"(^```.*?^```)", text, flags=re.S | re.M)
    source[0] = "".join(part if part.startswith("```") else re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", keep, part) for part in parts)


def copy_figures(app, problem):
    """Copies docs/figures: pages name them in HTML, which Sphinx does not follow."""
    if problem is None and os.path.isdir(os.path.join(DOCS, "figures")):
        shutil.copytree(os.path.join(DOCS, "figures"), os.path.join(app.outdir, "figures"), dirs_exist_ok=True)


def setup(app):
    app.add_lexer("mlir", TextLexer)
    app.connect("source-read", add_contents)
    app.connect("build-finished", copy_figures)
