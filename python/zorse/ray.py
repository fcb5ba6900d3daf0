"""Training on the nodes of a Ray cluster. Ray starts and stops processes; zorse-run detects failures and decides which
devices take part (docs/guides/elastic.md)."""
from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

try:
    import ray
except ImportError as error:
    raise ImportError(f"zorse.ray needs Ray ({error}): pip install 'zorse[ray]'") from None

from ._files import cluster_file
from ._metrics import Change, Step
from ._ray_nodes import Nodes
from ._tools import tool
from ._train import Run
from ._train import train as _train
from .options import Path


def train(model: Any, data: Any, *, max_steps: int, output: Path, save_interval: int, cluster: Path | Mapping[str, Any] | None = None, min_nodes: int = 1,
          wait_seconds: float = 600, on_step: Callable[[Step], Any] | None = None, link_seconds: float = 0.3, resume: bool = False, **options: Any) -> Run:
    """zorse.train as an elastic job on the nodes of the Ray cluster.

    output: folder that all nodes share, for the bundle and the checkpoints. save_interval: steps between checkpoints; a failure costs the steps since the newest one.
    cluster: cluster file whose nodes have the names of Ray's nodes; None: it is described and measured on the nodes that are there (link_seconds per link), and again when
    other nodes join. min_nodes: nodes to wait for before the start. All other arguments are those of zorse.train.

    Connects to the cluster of RAY_ADDRESS, or the local one, unless ray.init was called. Raises ZorseError with the message of the tool.
    """
    if not ray.is_initialized():
        ray.init(address="auto", logging_level="warning")
    output = os.path.abspath(os.fspath(output))
    os.makedirs(output, exist_ok=True)
    with Nodes() as nodes, tempfile.TemporaryDirectory(prefix="zorse-") as folder:
        _wait(nodes, min_nodes, wait_seconds)
        earlier: list[Step] = []
        changes: list[Change] = []
        while True:
            path = os.path.join(output, "cluster.yaml")
            known = set(nodes.ready())
            if cluster is None:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(nodes.describe(sorted(known), tool("zorse-cluster"), link_seconds))
            else:
                path = cluster_file(cluster, folder)
            grown = False

            def each(step: Step) -> Any:
                nonlocal grown
                going = None if on_step is None else on_step(step)
                if going is not False and cluster is None and not set(nodes.ready()) <= known:
                    grown = True
                    return False
                return going

            run = _train(model, data, max_steps=max_steps, output=output, cluster=path, on_step=each, spawn=True, elastic=True, save_interval=save_interval,
                         checkpoint_dir=os.path.join(output, "checkpoints"), start_command=nodes.start_command, device_discovery_script=nodes.discovery_script,
                         wait_seconds=wait_seconds, compile_all_functions=True, resume=resume, **options)
            run.steps[:0] = [step for step in earlier if not run.steps or step.step < run.steps[0].step]
            run.changes[:0] = changes
            if not grown or not run.stopped:
                return run
            earlier, changes, resume = run.steps, run.changes, True


def _wait(nodes: Nodes, count: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    while len(nodes.ready()) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"{len(nodes.ready())} nodes of the Ray cluster answer, fewer than min_nodes={count}, after {seconds:g} s" +
                               (f"; {nodes.problem}" if nodes.problem else ""))
        time.sleep(0.1)
