"""zorse.plan: chooses a plan and reports its schedule, step time, memory and reasons."""
from __future__ import annotations

import html
import json
import os
import tempfile
from collections.abc import Mapping
from typing import Any, Unpack

from ._files import cluster_file, model_file
from ._tools import call
from .options import Path, PlanOptions, check, words


class Report:
    """A plan and its evaluation. A notebook shows it as the page that `zorse-plan --html` writes."""

    def __init__(self, plan: dict[str, Any], figures: dict[str, Any], page: str):
        self.plan = plan  #: plan.json (docs/reference/plan-json.md)
        self.figures = figures  #: the JSON report (docs/reference/report-json.md)
        self.page = page  #: HTML: timeline, memory, tiling, reasons

    @property
    def step_seconds(self) -> float:
        """Predicted time of a step, in seconds."""
        return float(self.figures["step_seconds"])

    def save(self, path: Path) -> None:
        """Writes plan.json, for `zorse.compile(plan=...)`."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.plan, file, indent=1)
            file.write("\n")

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.page, quote=True)}" style="width:100%;height:720px;border:0"></iframe>'

    def __repr__(self) -> str:
        return f"<plan: {self.step_seconds:.4g} s a step>"


def plan(model: Path | None = None, *, cluster: Path | Mapping[str, Any] | None = None, global_batch_size: int | None = None, model_shape: str | None = None, plan: Path | None = None,
         **options: Unpack[PlanOptions]) -> Report:
    """Chooses a plan for a model on a cluster, or evaluates a given one: `zorse-plan`.

    model: an ONNX file, a bundle, or a table of layers; or `model_shape`, a known model, dimensions or a config.json ("llama-7b"). plan: a plan.json to evaluate
    instead of searching for one. global_batch_size: samples per step. options: PlanOptions. Raises ZorseError with the planner's message: for a plan that does not
    fit it names the devices and the missing memory.
    """
    check(options, PlanOptions)
    if global_batch_size is None:
        raise TypeError("expected global_batch_size, the samples per step of all devices together")
    if (model is None) == (model_shape is None):
        raise TypeError("expected a model or a model_shape, and not both")
    with tempfile.TemporaryDirectory(prefix="zorse-") as folder:
        files = {name: os.path.join(folder, name) for name in ("plan.json", "report.json", "page.html")}
        line = [model_file(model)] if model is not None else ["--model-shape", str(model_shape)]
        line += ["--cluster", cluster_file(cluster, folder), "--global-batch-size", str(global_batch_size), "--quiet", "-o", files["plan.json"], "--json", files["report.json"],
                 "--html", files["page.html"], *words(options)]
        call("zorse-plan", line + (["--plan", os.fspath(plan)] if plan is not None else []))
        texts = {}
        for name, path in files.items():
            with open(path, encoding="utf-8") as file:
                texts[name] = file.read()
    return Report(json.loads(texts["plan.json"]), json.loads(texts["report.json"]), texts["page.html"])
