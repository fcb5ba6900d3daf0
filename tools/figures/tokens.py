"""Rows of tokens as zorse.data writes them, and the tiles of the attention kernel."""
from figures.runs import read_json
from figures.svg import Svg, legend


def token_rows(figure, _):
    """Tokens and labels of prepared data, as zorse.data wrote them from a few sentences (docs/figures/token-rows.json)."""
    svg = Svg(figure["title"], "Layouts of prepared data: tokens in rows, colored by document, above the labels of their positions; labels that do not count are hatched.")
    x, y, size = 60, 8, 39
    for panel in read_json(figure["rows"]):
        svg.text(8, y + 14, panel["title"], "h")
        y += 24
        for row in panel["rows"]:
            svg.text(x - 8, y + 16, "tokens", "s e")
            svg.text(x - 8, y + 38, "labels", "s e")
            for i, (token, document, label) in enumerate(zip(row["tokens"], row["documents"], row["labels"])):
                svg.rect(x + size * i, y, size, 23, f"t{document}" if document is not None else "box")
                svg.text(x + size * (i + 0.5), y + 16, token, "n")
                svg.rect(x + size * i, y + 23, size, 20, "i" if label is None else "bg")
                if label is not None:
                    svg.text(x + size * (i + 0.5), y + 38, label, "n")
            y += 52
        y += 8
    legend(svg, x, y, [("t0", "document 1"), ("t1", "document 2"), ("t2", "document 3"), ("box", "padding"), ("i", "label -100")])
    return svg.write()


def attention(figure, _):
    """Which tiles a block of queries streams under a causal mask."""
    positions, rows, columns = figure["positions"], figure["block_rows"], figure["tile_columns"]
    svg = Svg(figure["title"], "Blocks of queries downwards, tiles of keys to the right; tiles above the diagonal are skipped, tiles on the diagonal are masked.")
    x, y, size = 150, 58, 32
    height = size * 1.6
    svg.text(x, 20, f"keys and values, {positions} positions, streamed in tiles of {columns} through shared memory →", "s")
    for j in range(positions // columns):
        svg.text(x + size * (j + 0.5), 46, str(j * columns), "s m")
    for i in range(positions // rows):
        top = y + (height + 8) * i
        svg.text(x - 12, top + height / 2 - 4, f"block {i}", "e")
        svg.text(x - 12, top + height / 2 + 13, f"queries {i * rows}-{(i + 1) * rows - 1}", "s e")
        for j in range(positions // columns):
            first, last = j * columns, (j + 1) * columns - 1
            kind = "skipped" if first > (i + 1) * rows - 1 else "full" if last <= i * rows else "masked"
            svg.rect(x + size * j, top, size, height, {"skipped": None, "full": "t0", "masked": "t1"}[kind], cls="k" if kind != "skipped" else "l", tip=kind)
    legend(svg, x, y + (height + 8) * (positions // rows) + 4, [("t0", "full tile: no mask"), ("t1", "tile on the diagonal: masked")])
    svg.text(x + 390, y + (height + 8) * (positions // rows) + 15, "empty: skipped", "s")
    return svg.write()
