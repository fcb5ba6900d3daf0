"""SVG text: shapes, colors of both modes, and estimates of text widths."""
import html
import math

WIDTH = 700  # of a page's column: wider drawings would make text smaller than 12 px
FILLS = {  # name: (light, dark)
    "f": ("#a8c7f5", "#2d5796"), "f2": ("#7aa6ea", "#386bb3"), "b": ("#a9dcb4", "#235731"), "b2": ("#74c287", "#2f7844"), "w": ("#f6d58e", "#6b5015"), "w2": ("#e5b654", "#856620"),
    "o": ("#d5d9de", "#484f58"), "t0": ("#a8c7f5", "#2d5796"), "t1": ("#f6d58e", "#80611c"), "t2": ("#a9dcb4", "#2b6a3c"), "t3": ("#e3b9e8", "#6b3d72"), "t4": ("#f4b8a9", "#80402f"), "t5": ("#b5dfe0", "#2b6466"),
    "fg": ("#1f2328", "#e6edf3"), "box": ("#f6f8fa", "#1c2128"), "bad": ("#d1242f", "#ff7b72"), "bg": ("#ffffff", "#0d1117"),
}
LINES = {"fg": ("#1f2328", "#e6edf3"), "soft": ("#59636e", "#9198a1"), "line": ("#c4ccd4", "#444c56"), "hatch": ("#b9c1ca", "#4b535d")}
TEXT = """text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--fg)}
.s{fill:var(--soft);font-size:12px}.u,.n{font-size:12px}.h{font-size:14px;font-weight:600}.m,.n{text-anchor:middle}.e{text-anchor:end}.c{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:12px}.r{fill:var(--bad)}
.l{stroke:var(--line);fill:none}.a{stroke:var(--soft);fill:none;stroke-width:1.4}.d{stroke-dasharray:4 3}.x{stroke:var(--bad);fill:none;stroke-width:1.6}.k{stroke:var(--line)}.j{stroke:var(--fg)}.g{stroke:var(--bg)}.i{fill:url(#idle)}"""
PATTERNS = (
    ('class="i', '<pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6" style="stroke:var(--hatch);stroke-width:2"/></pattern>'),
    ("url(#arrow)", '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" style="fill:var(--soft)"/></marker>'),
)


def number(x):
    return f"{x:.1f}".rstrip("0").rstrip(".")


def percent(value):
    return f"{100 * value:.0f} %"


def megabytes(value):
    return f"{value / 2**20:.1f} MiB"


def text_width(text, size=13):
    """An estimate for the widest of the fonts."""
    narrow = sum(text.count(c) for c in "iljt.,:;|'()[] fI1")
    return size * (0.61 * (len(text) - narrow) + 0.36 * narrow)


class Svg:
    def __init__(self, title, description=""):
        self.title, self.description, self.parts, self.width, self.height, self.fills = title, description, [], 0, 0, set()

    def grow(self, x, y):
        self.width, self.height = max(self.width, x), max(self.height, y)

    def rect(self, x, y, w, h, fill=None, cls="k", rx=0, tip=None):
        """`fill`: a name of FILLS, or "i" for hatched. `cls`: "k" has an edge, "g" one in the color of the background."""
        self.grow(x + w, y + h)
        if fill and fill != "i":
            self.fills.add(fill)
        classes = " ".join(filter(None, ["i" if fill == "i" else f"z{fill}" if fill else "", cls]))
        shape = f'<rect x="{number(x)}" y="{number(y)}" width="{number(w)}" height="{number(h)}" class="{classes}"' + (f' rx="{rx}"' if rx else "")
        self.parts.append(f"{shape}><title>{html.escape(tip)}</title></rect>" if tip else shape + "/>")

    def text(self, x, y, text, cls=None):
        classes = set((cls or "").split())
        width = text_width(text, 14 if "h" in classes else 12 if classes & {"n", "s", "u"} else 13) if "c" not in classes else 7.3 * len(text)
        self.grow(x + (0 if "e" in classes else width / 2 if {"m", "n"} & classes else width), y + 4)
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}"' + (f' class="{cls}"' if cls else "") + f">{html.escape(text, quote=False)}</text>")

    def path(self, points, cls="l", arrow=False, style=None):
        for x, y in points:
            self.grow(x, y)
        shape = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.parts.append(f'<path d="{shape}" class="{cls}"' + (' marker-end="url(#arrow)"' if arrow else "") + (f' style="{style}"' if style else "") + "/>")

    def label(self, x, y, text, cls="s m"):
        """Text with the background behind it, for lines and hatched areas."""
        w = text_width(text, 12) + 6
        self.rect(x - w / 2, y - 11, w, 15, "bg", cls=None, rx=2)
        self.text(x, y, text, cls)

    def box(self, x, y, w, h, lines, fill="box", first="", rest="s", rx=5):
        """A box with centered lines; a line may be (text, classes)."""
        self.rect(x, y, w, h, fill, rx=rx)
        for i, line in enumerate(lines):
            text, cls = line if isinstance(line, tuple) else (line, first if i == 0 else rest if fill == "box" else "u")
            self.text(x + w / 2, y + h / 2 + 4.5 + 16 * (i - (len(lines) - 1) / 2), text, f"{cls} m".strip())

    def write(self):
        w, h = math.ceil(self.width + 10), math.ceil(self.height + 8)
        if w > WIDTH + 4:
            raise ValueError(f"{self.title}: {w} px wide; at most {WIDTH}")
        body = "\n".join(self.parts)
        names = sorted(self.fills | {"bg"} | ({"bad"} if 'class="x' in body or " r" in body or "var(--bad)" in body else set()) | {name for name in FILLS if f"var(--{name})" in body})
        colors = lambda mode: ";".join([f"--{name}:{pair[mode]}" for name, pair in LINES.items()] + [f"--{name}:{FILLS[name][mode]}" for name in names])
        style = f"svg{{{colors(0)}}}\n@media (prefers-color-scheme:dark){{svg{{{colors(1)}}}}}\n{TEXT}\n" + "".join(f".z{name}{{fill:var(--{name})}}" for name in names)
        defs = "".join(d for mark, d in PATTERNS if mark in body)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" aria-labelledby="t d">\n<title id="t">{html.escape(self.title)}</title>\n'
                f'<desc id="d">{html.escape(self.description)}</desc>\n<style>{style}</style>\n' + (f"<defs>{defs}</defs>\n" if defs else "") + f'<rect width="{w}" height="{h}" rx="6" class="zbg"/>\n' + body + "\n</svg>\n")


def legend(svg, x, y, entries):
    """A row of (fill, name), or more rows if it does not fit."""
    left = x
    for fill, name in entries:
        if x + 19 + text_width(name, 12) > WIDTH - 8:
            x, y = left, y + 20
        svg.rect(x, y, 13, 13, fill)
        svg.text(x + 19, y + 11, name, "s")
        x += 38 + text_width(name, 12)
