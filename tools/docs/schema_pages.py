"""Pages of file formats, from JSON schemas: one table of keys for every object."""
import json
import os

import site_tree as tree

# page -> (title, introduction, example, [schema files], text below)
PAGES = {
    "reference/cluster-yaml.md": ("cluster.yaml", [
        "A cluster file describes devices, their speed and memory, and the links between them. `zorse-cluster` writes one for the machine it runs on; by hand it is short:"],
        ("yaml", "name: two small nodes\nnodes:\n  - name: n0\n    devices:\n      - {name: a, kind: cpu, flops_per_second: 40 GFLOP/s, memory: 2 GiB, threads: 2}\n"
                 "      - {name: t4, type: T4, count: 2}          # devices t4:0 and t4:1\n  - name: n1\n    count: 3                                    # nodes n1:0, n1:1, n1:2\n    devices:\n"
                 "      - {name: c, type: cpu-thread, threads: 4} # devices c:0, c:1, c:2, one per node\nlinks:\n  intra_node: {bandwidth: 10 GB/s, latency: 2 us}\n  inter_node: {bandwidth: 10 Gbit/s, latency: 100 us}"),
        ["schemas/cluster.schema.json"], [
        "## Paths of transfers", "",
        "Inside a node, a transfer uses the `device_link` of the sender, the `bus`, and the `device_link` of the receiver. Inside a site it uses the `nic` of both nodes and the `fabric`. Between sites it also uses both `uplink`s and the link of the pair.", "",
        "A measured [profile](profile-json.md) takes precedence over speeds and links of this file.", ""]),
    "reference/plan-json.md": ("plan.json", [
        "A plan states which device does which part of a training step. `zorse-plan` writes plans; `zorse-compile --plan` takes any valid one, edited or written by hand. Comments (`//`, `/* */`) are allowed. "
        "[Plans](../concepts/plans.md) and [Schedules and bubbles](../concepts/schedules.md) explain the terms."],
        ("json", '{\n  "format": 2,\n  "global_batch_size": 32,\n  "devices": ["a", "b", "c"],\n  "cells": [\n    {"units": [0, 6],  "samples": [0, 16],  "device": "a"},\n    {"units": [0, 6],  "samples": [16, 32], "device": "b"},\n'
                 '    {"units": [6, 12], "samples": [0, 32],  "device": "c"}\n  ],\n  "schedule": "1f1b"\n}'),
        ["plan.schema.json"], []),
    "reference/profile-json.md": ("profile.json", [
        "A profile holds measured times of the functions of a model on devices, and measured links. `zorse-profile` measures and writes one. `zorse-plan` and `zorse-compile` take it with `--profile`. Comments (`//`, `/* */`) are allowed. "
        "Without a profile, times are modeled from the [cluster file](cluster-yaml.md)."],
        ("json", '{\n  "format": 2,\n  "devices": [\n    {"device": "A100-40",\n     "update": {"per_element": 1.9e-11, "fixed": 8e-6},\n     "unit_classes": {\n       "embedding":       [{"batch_size": 1, "forward": 4.1e-5, "backward": 6.0e-5}],\n'
                 '       "block attention": [{"batch_size": 1, "forward": 1.1e-3, "backward": 2.3e-3},\n                           {"batch_size": 4, "forward": 3.9e-3, "backward": 8.2e-3}]\n     }}\n  ],\n'
                 '  "links": [{"from": "n0", "to": "n1", "bandwidth": 5.9e9, "latency": 2.1e-5}]\n}'),
        ["profile.schema.json"], [
        "## Missing times", "",
        "- Between two points, times are interpolated linearly. Above the last point they grow in proportion to the batch size; below the first they equal the first.",
        "- A missing backward is the sum of its two parts. Missing parts share the backward in proportion to their FLOPs.",
        "- All other times follow the roofline model, scaled by what was measured of other functions.", ""]),
    "reference/layers-json.md": ("layers.json", [
        "A table of layers describes a model by sizes and times. `zorse-plan` plans for it without an ONNX file; it cannot be trained. Comments (`//`, `/* */`) are allowed."],
        ("json", '{\n  "format": 1,\n  "compute_type": "f16",\n  "tokens_per_sample": 512,\n  "classes": {\n    "embedding": {"parameters": 25731072, "output": 786432, "saved": 0},\n'
                 '    "block": {"parameters": 7087872, "output": 786432, "saved": 13369344},\n    "head": {"parameter_bytes": 51462144, "saved": 52248576}\n  },\n  "layers": [{"class": "embedding"}, {"class": "block", "count": 12}, {"class": "head"}]\n}'),
        ["layers.schema.json"], [
        "Every class needs times on every device, here or in a `--profile`. If times are missing, `flops` give an estimate. The report lists what was assumed.", ""]),
    "reference/report-json.md": ("Report and metrics", [
        "Three outputs are JSON: the report of a plan, the metrics of a run, and the results of a simulation."], None,
        ["schemas/report.schema.json", "schemas/metrics.schema.json", "schemas/simulation.schema.json"], []),
}


def load(name):
    with open(os.path.join(tree.DOCS, name)) as f:
        return json.load(f)


class Page:
    """Renders the objects of a schema. An object that is used more than once has one table."""

    def __init__(self, schema, level, outputs=False):
        self.schema, self.level, self.outputs = schema, level, outputs
        self.out, self.done, self.queue = [], set(), []
        self.name_objects(schema, "", set())

    def name_objects(self, node, path, seen):
        """Gives every object without a title one that says where it is: `stages[].devices[]`, and of several that differ what is theirs alone."""
        if "$ref" in node:
            if node["$ref"].startswith("#/") and node["$ref"] not in seen:
                seen.add(node["$ref"])
                target = self.schema
                for part in node["$ref"][2:].split("/"):
                    target = target[part]
                self.name_objects(target, path, seen)
            return
        forms = [part for part in node.get("oneOf", []) if "properties" in part]
        for part in node.get("oneOf", []):
            own = part.get("properties", {})
            last = list(own)[-1:] or [""]
            self.name_objects(part, path if len(forms) < 2 else f"{path} ({own['name']['const'] if 'name' in own else last[0]})", seen)
        if "properties" in node and path:
            node.setdefault("title", path)
        for name, value in node.get("properties", {}).items():
            self.name_objects(value, f"{path}.{name}" if path else name, seen)
        for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
            if isinstance(node.get(key), dict):
                self.name_objects(node[key], path + mark, seen)

    def resolved(self, node):
        """A node with its reference followed; its own description and default come first."""
        if "$ref" not in node:
            return node
        name, _, pointer = node["$ref"].partition("#/")
        if name:  # another file: its page has the keys
            return {"type": "list", **{k: v for k, v in node.items() if k != "$ref"}, "$name": node["$ref"]}
        target = self.schema
        for part in pointer.split("/"):
            target = target[part]
        return {**self.resolved(target), **{k: v for k, v in node.items() if k != "$ref"}, "$name": node["$ref"]}

    def objects(self, node):
        """(object, name) of every object that a value may be or contain."""
        node = self.resolved(node)
        if node.get("$name", "").split("#")[0]:
            return  # another file's page has it
        if "properties" in node and list(node["properties"]) != ["name"]:
            yield node
        for part in node.get("oneOf", []):
            yield from self.objects(part)
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                yield from self.objects(node[key])

    def type_of(self, node):
        node = self.resolved(node)
        if "properties" in node:
            return self.link(node) if list(node["properties"]) != ["name"] else f"`{{\"name\": \"{node['properties']['name']['const']}\"}}`"
        if "const" in node:
            return f"`{json.dumps(node['const'])}`" if not isinstance(node["const"], str) else f"`{node['const']}`"
        if "enum" in node:
            return ", ".join(f"`{v}`" for v in node["enum"])
        if any("type" in part or "$ref" in part or "enum" in part for part in node.get("oneOf", [])):
            if len(node["oneOf"]) > 3:  # forms of one thing, each with its table
                first = next(self.objects({"oneOf": node["oneOf"]}))
                return f"{self.type_of(node['oneOf'][0])} or [object](#{tree.slug(first['title'])})"
            return " or ".join(dict.fromkeys(self.type_of(part) for part in node["oneOf"]))
        kind = node.get("type", "any")
        if kind == "array":
            inner = self.type_of(node["items"]) if node.get("items") else "any"
            if self.resolved(node.get("items", {})).get("type") == "integer" and node.get("minItems") == 2:
                return "`[begin, end]`"
            return f"list of {plural(inner)}"
        if kind == "object":
            inner = node.get("additionalProperties")
            return f"map to {self.type_of(inner)}" if isinstance(inner, dict) else "map"
        if "title" in node and (isinstance(kind, list) or node["title"] == "price"):
            return node["title"]
        if isinstance(kind, list):
            return " or ".join(kind)
        limits = bounds(node)
        return {"string": "text"}.get(kind, kind) + (f" {limits}" if limits else "")

    def link(self, node):
        return f"[{node['title']}](#{tree.slug(node['title'])})"

    def table(self, node, root):
        title = node["title"]
        if not root:
            if title in self.done:
                return
            self.done.add(title)
            self.out += [f"{'#' * self.level} {title}", ""]
            text = self.own_description(node) if "$name" in node else node.get("description", "")
            if text and node.get("type") == "object":
                self.out += [text[0].upper() + text[1:] + ("" if text.endswith(".") else "."), ""]
        self.out += ["| key | type | meaning |", "|---|---|---|"]
        required = set() if self.outputs else set(node.get("required", []))
        for name, value in node["properties"].items():
            whole = self.resolved(value)
            text = whole.get("description", "")
            notes = (["required"] if name in required else []) + ([f"default {shown(whole['default'])}"] if "default" in whole else [])
            self.out.append(f"| `{name}` | {self.type_of(value).replace('|', chr(92) + '|')} | {text.replace('|', chr(92) + '|')}{' (' + '; '.join(notes) + ')' if notes else ''} |")
        self.out.append("")
        # Objects follow the one that has them; entries of lists come first.
        values = sorted(node["properties"].values(), key=lambda value: self.resolved(value).get("type") != "array")
        self.queue = [inner for value in values for inner in self.objects(value)] + self.queue

    def own_description(self, node):
        pointer = node["$name"].partition("#/")[2]
        target = self.schema
        for part in pointer.split("/"):
            target = target[part]
        return target.get("description", "")

    def write(self):
        self.table(self.schema, True)
        while self.queue:
            self.table(self.queue.pop(0), False)
        return self.out


def plural(word):
    if word in ("text", "integer", "number"):
        return word + "s"
    return word


def shown(value):
    if isinstance(value, bool):
        return f"`{'true' if value else 'false'}`"
    if isinstance(value, (int, float)):
        return f"{value:g}"
    return f"`{value}`" if value.replace("_", "").isalnum() and value not in ("all",) and " " not in value and not value[0].isupper() else value


def bounds(node):
    least, most, above = node.get("minimum"), node.get("maximum"), node.get("exclusiveMinimum")
    number = lambda v: f"{v:,}" if isinstance(v, int) and abs(v) < 1e9 else f"2^{v.bit_length() - 1}" if isinstance(v, int) and v & (v - 1) == 0 else f"{v:g}"
    if least is not None and most is not None:
        return f"{number(least)} to {number(most)}"
    if above is not None:
        return f"above {number(above)}"
    return f"from {number(least)}" if least is not None else ""


def write():
    for page, (title, introduction, example, names, below) in PAGES.items():
        out = [f"# {title}", "", *[line for text in introduction for line in (text, "")]]
        if example:
            out += [f"```{example[0]}", example[1], "```", ""]
        for name in names:
            schema = load(name)
            several = len(names) > 1
            out += [f"## {schema['title'] if several else 'Keys'}", ""] + ([schema["description"], ""] if several else [])
            out += Page(schema, 3 if several else 2, outputs=several).write()
        link = os.path.relpath
        out += below
        out += ["JSON schema: " + ", ".join(f"[{os.path.basename(n)}]({link(n, os.path.dirname(page))})" for n in names), ""]
        yield page, ", ".join("docs/" + n for n in names), "\n".join(out)
