"""Pages of commands, from what the tools print for --help and from the argument parsers of the Python modules."""
import ast
import os
import re
import subprocess

import site_tree as tree

# (page, command, source of its options, one sentence for the table of commands)
COMMANDS = [
    ("zorse-cluster", "zorse-cluster", "cli"),
    ("zorse-plan", "zorse-plan", "cli"),
    ("zorse-compile", "zorse-compile", "cli"),
    ("zorse-run", "zorse-run", "cli"),
    ("zorse-profile", "zorse-profile", "cli"),
    ("zorse-inspect", "zorse-inspect", "cli"),
    ("zorse-export", "zorse-export", "cli"),
    ("zorse-torch-export", "zorse-torch-export", "python/zorse/torch_export.py"),
    ("zorse-data", "python -m zorse.data", "python/zorse/data.py"),
    ("zorse-import", "zorse-import", "llvm"),
    ("zorse-opt", "zorse-opt", "passes"),
]
SENTENCES = {
    "zorse-cluster": "Writes `cluster.yaml` for this machine, for the machines of a job, or for a list of hosts.",
    "zorse-plan": "Chooses or evaluates a plan and reports its step time and memory.",
    "zorse-compile": "Compiles a model for a cluster and writes a bundle.",
    "zorse-run": "Trains from a bundle, evaluates, or simulates.",
    "zorse-profile": "Measures the model's functions and the links; writes `profile.json`.",
    "zorse-inspect": "Shows what a bundle contains.",
    "zorse-export": "Writes trained weights as safetensors, ONNX, or a Hugging Face directory.",
    "zorse-torch-export": "Writes a PyTorch or Hugging Face model to an ONNX file.",
    "zorse-data": "Writes token shards from text or JSON lines.",
    "zorse-import": "Prints the graph IR of an ONNX file.",
    "zorse-opt": "Runs compiler passes on IR.",
}
TYPES = {"TEXT": "", "UINT": "N", "INT": "N", "FLOAT": "X"}


def linked(text, page, code=True):
    """Plain text as Markdown: names of pages become links, what would be Markdown is escaped, options become code."""
    moved = tree.moved_pages()
    titles = {p["path"]: p["title"] for p in tree.pages()}
    here = os.path.dirname(page)

    def link(match):
        path = moved.get(match[0], match[0]).removeprefix("docs/")
        return f"[{titles.get(path, path)}]({os.path.relpath(path, here)})"

    pieces = re.split(r"(docs/[\w/-]+\.md)", text)
    for i in range(0, len(pieces), 2):
        piece = pieces[i].replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
        if code:
            piece = re.sub(r"(?<![\w`-])(--[a-z][a-z0-9-]*(=[\w.-]+)?)", lambda m: f"`{m[1]}`", piece)
        pieces[i] = piece
    for i in range(1, len(pieces), 2):
        pieces[i] = link(re.match(".*", pieces[i]))
    return "".join(pieces)


def help_of(tool, folder):
    path = os.path.join(folder, tool)
    if not os.path.exists(path):
        raise SystemExit(f"tools/docs.py: there is no {path}; tools/build.sh release zorse-tools builds it, and --bin names another folder")
    done = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise SystemExit(f"tools/docs.py: {tool} --help ends with {done.returncode}")
    return done.stdout.rstrip("\n").replace(folder.rstrip("/") + "/", "").replace("./", "")


def cli_options(text):
    """(introduction, usage, {group: [(names, the rest of the first column, description)]}) of CLI11's help."""
    head, _, rest = text.partition("Usage:")
    usage, _, rest = rest.partition("\n")
    usage = re.sub(r"^\S*/", "", usage.strip())
    groups, group, lines = {}, None, rest.split("\n")
    for at, line in enumerate(lines):
        if not line.strip():
            continue
        if not line.startswith(" "):
            group = groups.setdefault(line.strip().rstrip(":"), [])
        elif line.startswith("   " + " " * 20):
            group[-1][2] = (group[-1][2] + " " + line.strip()).strip()
        else:
            # The description begins in column 30, or on a separate line.
            below = at + 1 < len(lines) and lines[at + 1].startswith("   " + " " * 20)
            left, right = (line[:30], line[30:]) if len(line) > 30 and not below else (line, "")
            names, _, value = left.strip().partition(" ")
            group.append([names, value.strip(), right.strip()])
    return head.strip(), usage, groups


def value_of(text):
    """The second column of an option: its value, range, default and remarks on other options."""
    remarks, value, default = [], "", ""
    text = re.sub(r"\{(true|false)\}", "", text)
    for word, verb in (("Needs", "with"), ("Excludes", "not with")):
        found = re.search(rf"{word}:((?: --?[\w-]+)+)", text)
        if found:
            remarks.append(verb + " " + ", ".join(f"`{o}`" for o in found[1].split()))
            text = text.replace(found[0], "")
    required = "REQUIRED" in text
    text = text.replace("REQUIRED", "").strip()
    several = text.endswith("...")
    text = text.removesuffix("...").strip()
    if found := re.match(r"(TEXT|UINT|INT|FLOAT|FILE|DIR)(?::(.*?))?(?:=([^\]]*))?(?: x (\d+))?$", text):
        kind, limits, default, times = found.groups()
        if limits and limits.startswith("{"):
            value = " ".join(f"`{v}`" for v in re.sub(r"=.*", "", limits.split("}")[0].strip("{")).split(","))
        else:
            value = TYPES.get(kind, "")
            if limits and (bounds := re.search(r"in \[(.*?) - (.*?)\]", limits)):
                remarks.append(f"{shown(bounds[1])} to {shown(bounds[2])}")
            elif limits and "POSITIVE" in limits:
                remarks.append("positive")
        if times:
            remarks.append(f"{times} values")
    if several:
        remarks.append("repeatable")
    return value, default or "", required, remarks


def shown(number):
    try:
        value = float(number)
    except ValueError:
        return number
    if value == int(value) and value > 4096 and int(value) & (int(value) - 1) == 0:
        return f"2^{int(value).bit_length() - 1}"
    return f"{int(value):,}" if value == int(value) else number


def option_rows(options, page):
    for names, rest, text in options:
        value, default, required, remarks = value_of(rest)
        names = " ".join(f"`{n}`" for n in names.split(","))
        cell = linked(text, page)
        extra = (["required"] if required else []) + remarks + ([f"default {default}"] if default else [])
        cell += f" ({'; '.join(extra)})" if extra else ""
        yield f"| {names}{' ' + value if value else ''} | {cell} |"


def cli_page(name, text, page):
    introduction, usage, groups = cli_options(text)
    lines, examples = [], []
    for line in introduction.split("\n"):
        (examples if line.startswith("  ") else lines).append(line.strip())
    out = [f"# {name}", "", *[linked(line, page) for line in lines if line], ""]
    if examples:
        out += ["```text", *examples, "```", ""]
    out += ["```text", usage, "```", ""]
    for title, options in groups.items():
        options = [o for o in options if not o[0].startswith("-h")]
        if options:
            title, _, more = title.partition(" (docs/")
            out += [f"## {title}", ""] + ([linked(f"See docs/{more.rstrip(')')}.", page), ""] if more else []) + [f"| {'argument' if title == 'Positionals' else 'option'} | meaning |", "|---|---|", *option_rows(options, page), ""]
    return "\n".join(out).replace("## Positionals", "## Arguments")


def llvm_page(name, text, page):
    overview = re.search(r"OVERVIEW: (.*)", text)[1]
    usage = re.search(r"USAGE: (.*)", text)[1]
    own = text.split(f"{name} options:")[1]
    rows = []
    for flag, value, meaning in re.findall(r"^  (--[\w-]+)(?:=<([^>]*)>)?\s+- (.*)$", own, re.M):
        shape = {"string": "", "long": "N", "int": "N", "uint": "N"}.get(value, value)
        rows.append(f"| `{flag}`{' ' + shape if shape else ''} | {linked(meaning, page)} |")
    return "\n".join([f"# {name}", "", overview, "", "```text", usage, "```", "", "## Options", "", "| option | meaning |", "|---|---|", *rows, ""])


def passes_page(name, text, page):
    passes, current = [], None
    for line in text.split("Passes:\n")[1].split("\n"):
        if not line.strip():
            break
        if found := re.match(r"  --(zorse-[\w-]*?)\s*-\s{1,3}(\S.*)$", line):
            current = (found[1], found[2], [])
            passes.append(current)
        elif found := re.match(r"    --([\w-]+)(?:=<(\w+)>)?\s+- (.*)$", line):
            current[2].append([found[1], found[3], []])
        elif found := re.match(r"    =([\w-]+)\s+-\s+(.*)$", line):
            current[2][-1][2].append(f"`{found[1]}` ({linked(found[2], page)})")
    out = [f"# {name}", "", f"Runs compiler passes on IR in MLIR's text form. It takes all options of `mlir-opt`; these are Zorse's own passes. {linked('Order and examples: docs/internals/passes.md.', page)}", "",
           "```text", "zorse-opt [options] input.mlir", "zorse-opt --zorse-find-units='long-span=2' input.mlir", "```", "", "| pass | what it does | options |", "|---|---|---|"]
    for flag, meaning, options in passes:
        shown_options = "<br>".join(f"`{o}`: {linked(text, page)}" + (": " + ", ".join(values) if values else "") for o, text, values in options)
        out.append(f"| `--{flag}` | {linked(meaning, page)} | {shown_options} |")
    return "\n".join(out + [""])


def parser_calls(path):
    """(description, [(names, keywords)]) of the ArgumentParser that a module makes, without importing it."""
    with open(os.path.join(tree.ROOT, path)) as f:
        module = ast.parse(f.read())
    arguments, description = [], ast.get_docstring(module) or ""
    calls = sorted((node for node in ast.walk(module) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)), key=lambda c: (c.lineno, c.col_offset))
    for call in calls:
        if call.func.attr == "add_argument":
            names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            keywords = {}
            for keyword in call.keywords:
                try:
                    keywords[keyword.arg] = ast.literal_eval(keyword.value)
                except ValueError:
                    keywords[keyword.arg] = ast.unparse(keyword.value)
            if keywords.get("help") != "argparse.SUPPRESS":
                arguments.append((names, keywords))
    return description, arguments


def python_page(title, path, page):
    description, arguments = parser_calls(path)
    first, *rest = [part.strip() for part in description.split("\n\n")]
    out = [f"# {title}", "", linked(" ".join(first.split()), page), ""]
    rows = []
    for names, keywords in arguments:
        value = keywords.get("metavar")
        choices = keywords.get("choices")
        if isinstance(choices, (list, tuple)):
            value = " ".join(f"`{c}`" for c in choices)
        elif isinstance(value, tuple):
            value = " ".join(value)
        elif value is None and not keywords.get("action") and names[0].startswith("-"):
            value = {"int": "N", "float": "X"}.get(keywords.get("type"), "")
        extra = (["required"] if keywords.get("required") else []) + (["repeatable"] if keywords.get("action") == "append" or keywords.get("nargs") in ("+", "*") else [])
        default = keywords.get("default")
        help_text = " ".join(str(keywords.get("help", "")).split()).replace("%(default)s", str(default)).replace("%%", "%")
        if default is not None and not isinstance(default, bool) and "default" not in help_text and isinstance(default, (int, float, str)):
            extra.append(f"default {default}")
        rows.append(f"| {' '.join(f'`{n}`' for n in names)}{' ' + str(value) if value and names[0].startswith('-') else ''} | {linked(help_text, page)}{' (' + '; '.join(extra) + ')' if extra else ''} |")
    out += ["## Usage", ""]
    for part in rest:
        if part.startswith(("python", "zorse-")) or "\n    " in "\n" + part:
            continue
        out += [linked(" ".join(piece.split()), page) for piece in re.split(r"\n(?=- )", part)] + [""]
    examples = [line.strip() for line in description.split("\n") if line.startswith("    ")]
    if examples:
        out += ["```text", *examples, "```", ""]
    return "\n".join(out + ["## Arguments and options", "", "| argument | meaning |", "|---|---|", *rows, ""])


def write(folder):
    """(path, source, text) of every page."""
    rows = []
    for name, command, source in COMMANDS:
        page = f"reference/commands/{name}.md"
        if source == "cli":
            text, origin = cli_page(command, help_of(command, folder), page), f"{command} --help"
        elif source == "llvm":
            text, origin = llvm_page(command, help_of(command, folder), page), f"{command} --help"
        elif source == "passes":
            text, origin = passes_page(command, help_of(command, folder), page), f"{command} --help"
        else:
            text, origin = python_page(command, source, page), source
        rows.append(f"| [{command}]({name}.md) | {SENTENCES[name]} |")
        yield page, origin, text
    text = ["# Commands", "", "Every command prints its options with `--help`.", "",
            "Options of all tools can stand in a YAML file: `--config run.yaml`. Keys are option names without dashes in front; options of one tool stand under its name. The command line takes precedence.", "",
            "| command | what it does |", "|---|---|", *rows, ""]
    yield "reference/commands/index.md", "the pages below", "\n".join(text)
