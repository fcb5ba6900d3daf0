"""The page of the Python package, from its docstrings and signatures. Sources are read, not imported: PyTorch is not needed."""
import ast
import os
import re

import site_tree as tree
from command_pages import linked

PACKAGE = os.path.join(tree.ROOT, "python", "zorse")
PAGE = "reference/python.md"
ORDER = ["train", "compile", "plan", "evaluate", "export", "load_into", "Trainer", "TrainingArguments", "CompiledModule", "Run", "Bundle", "Report", "Evaluation", "Weights", "Step", "Sample", "ZorseError", "ZorseWarning", "tool"]


def module(name):
    with open(os.path.join(PACKAGE, name + ".py")) as f:
        text = f.read()
    return ast.parse(text), text.split("\n")


def definitions():
    """Name -> (node, lines of its source) of everything in zorse.__all__."""
    tree_of_package, lines = module("__init__")
    found, names = {}, []
    for node in tree_of_package.body:
        if isinstance(node, ast.ImportFrom):
            body, source = module(node.module)
            for alias in node.names:
                match = next((n for n in reversed(body.body) if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == alias.name), None)
                if match is not None:
                    found[alias.name] = (match, source)
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = (node, lines)
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)
    for node in ast.walk(tree_of_package):  # imported on first use
        if isinstance(node, ast.ImportFrom) and node.module is None:
            body, source = module(node.names[0].name)
            found.update({n.name: (n, source) for n in body.body if isinstance(n, ast.ClassDef) and n.name in names})
    missing = sorted(set(names) - set(found))
    if missing:
        raise SystemExit(f"tools/docs.py: python/zorse: no definition of {missing[0]}")
    return {name: found[name] for name in [n for n in ORDER if n in names] + [n for n in names if n not in ORDER]}


def signature(name, function, method=False):
    """name(a, b=1, *, c: int, **options: Unpack[X])."""
    arguments = function.args
    parts = []
    positional = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for a, default in list(zip(positional, defaults))[1 if method else 0:]:
        parts.append(a.arg + (f"={ast.unparse(default)}" if default is not None else ""))
    if arguments.vararg:
        parts.append("*" + arguments.vararg.arg)
    elif arguments.kwonlyargs:
        parts.append("*")
    for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        parts.append(a.arg + (f"={ast.unparse(default)}" if default is not None else ""))
    if arguments.kwarg:
        parts.append("**" + arguments.kwarg.arg)
    lines, line = [], f"{name}("
    for i, part in enumerate(parts):
        piece = part + (", " if i + 1 < len(parts) else "")
        if len(line) + len(piece) > 110:
            lines.append(line.rstrip())
            line = " " * (len(name) + 1)
        line += piece
    return "\n".join(lines + [line + ")"])


def prose(text, parameters=()):
    """A docstring as Markdown paragraphs; `name: meaning.` of parameters become a list."""
    out = []
    text = re.sub(r"(?<!\n)\n(?![\n ])", " ", text)
    for name in [*parameters, "options"] if parameters else []:
        text = re.sub(rf"(^|[.;] ){name}: ", lambda m: m[1].replace(";", ".").rstrip() + f"\n\n- `{name}`: ", text, flags=re.M)
    text = re.sub(r"(?<=[.)]) (?=Raises \w+)", "\n\n", text)
    for part in re.split(r"\n\s*\n", text.strip()):
        if part.startswith("    "):
            out += ["```python", *[line[4:] for line in part.split("\n")], "```", ""]
        else:
            text = " ".join(part.split())
            code = re.split(r"(`[^`]*`)", text)
            paragraph = "".join(c if c.startswith("`") else linked(c, PAGE) for c in code)
            if paragraph.startswith("- ") and len(out) > 1 and out[-2].startswith("- "):
                out.pop()
            out += [paragraph, ""]
    return out


def remark(lines, node):
    """The text of `#:` behind a statement."""
    found = re.search(r"#: ?(.*)$", lines[node.end_lineno - 1])
    return found[1] if found else ""


def attributes(node, lines):
    """(name, type, text) of public attributes and properties."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and not item.target.id.startswith("_"):
            yield item.target.id, ast.unparse(item.annotation), remark(lines, item)
        elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
            annotations = {a.arg: ast.unparse(a.annotation) for a in item.args.args if a.annotation}
            for inner in item.body:
                targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target] if isinstance(inner, ast.AnnAssign) else []
                if isinstance(inner, (ast.Assign, ast.AnnAssign)) and remark(lines, inner):
                    names = [t.attr for t in (targets[0].elts if isinstance(targets[0], ast.Tuple) else targets) if isinstance(t, ast.Attribute)]
                    for name in names:
                        if not name.startswith("_"):
                            yield name, annotations.get(name) or (ast.unparse(inner.annotation) if isinstance(inner, ast.AnnAssign) else ""), remark(lines, inner)
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and not item.name.startswith("_") and any(getattr(d, "id", "") in ("property", "cached_property") or getattr(d, "attr", "") == "cached_property" for d in item.decorator_list):
            yield item.name, ast.unparse(item.returns) if item.returns else "", " ".join((ast.get_docstring(item) or "").split())


def class_section(name, node, lines):
    base = [ast.unparse(b) for b in node.bases]
    out = [f"## {name}", "", *prose(ast.get_docstring(node) or (f"A subclass of {base[0]}." if base else ""))]
    rows = [f"| `{attribute}` | {f'`{kind}`'.replace('|', chr(92) + '|') if kind else ''} | {' '.join(prose(text)).strip() if text else ''} |" for attribute, kind, text in attributes(node, lines)]
    if rows:
        out += ["| attribute | type | meaning |", "|---|---|---|", *rows, ""]
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and not item.name.startswith("_") and not item.decorator_list:
            text = " ".join((ast.get_docstring(item) or "").split())
            out += [f"- `{signature(item.name, item, method=True)}`: {' '.join(prose(text)).strip()}".replace("\n", " ")]
    return out + [""] if out[-1] != "" else out


def option_lists():
    """Keyword options of compile, train and plan, by the classes of zorse.options."""
    body, lines = module("options")
    classes = {n.name: n for n in body.body if isinstance(n, ast.ClassDef)}

    def keys(name):
        node = classes[name]
        for base in node.bases:
            if ast.unparse(base) in classes:
                yield from keys(ast.unparse(base))
        for item in node.body:
            if isinstance(item, ast.AnnAssign):
                yield item.target.id

    out = ["## Options", "", "Options of the tools are keyword arguments: `weight_decay=0.1` is `--weight-decay 0.1`. A list is several values, `True` an option without a value, `None` an option that is not given.", ""]
    for function, name, tool in (("compile", "CompileOptions", "zorse-compile"), ("train", "RunOptions", "zorse-run"), ("plan", "PlanOptions", "zorse-plan")):
        also = " and those of `zorse.compile`" if function == "train" else ""
        out += [f"**`zorse.{function}`**: the options of [{tool}](commands/{tool}.md){also}: " + ", ".join(f"`{k}`" for k in dict.fromkeys(keys(name))) + ".", ""]
    return out


def write():
    body, _ = module("__init__")
    text = ast.get_docstring(body)
    out = ["# Python API", "", *prose(text), "```python", "import zorse", "```", ""] if "import zorse" not in text else ["# Python API", "", *prose(text)]
    for name, (node, lines) in definitions().items():
        if isinstance(node, ast.FunctionDef):
            out += [f"## {name}", "", "```python", signature(f"zorse.{name}", node), "```", "", *prose(ast.get_docstring(node) or "", [a.arg for a in node.args.args + node.args.kwonlyargs])]
        else:
            out += class_section(name, node, lines)
    yield PAGE, "python/zorse", "\n".join(out + option_lists())
