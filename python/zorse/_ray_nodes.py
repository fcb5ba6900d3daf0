"""The nodes of a Ray cluster: an actor on each of them that runs commands, and a server through which zorse-run uses
them."""
from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_ray_exec.py")
_PING_SECONDS, _LOST_SECONDS = 0.5, 3.0
_GONE = 255  # exit code of a command whose node is gone, as of ssh


def _die_with_parent() -> None:
    """A worker of Ray can end without ending its children."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@ray.remote(num_cpus=0, max_restarts=0, max_concurrency=256)
class Agent:
    """Runs commands on its node."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[subprocess.Popen[bytes], list[tuple[int, str]], threading.Condition]] = {}

    def ping(self) -> str:
        return ray.util.get_node_ip_address()

    def port(self) -> int:
        """A free port."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])

    def call(self, words: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
        done = subprocess.run(words, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=_die_with_parent)
        return done.returncode, done.stdout, done.stderr

    def start(self, command: str, environment: dict[str, str]) -> str:
        process = subprocess.Popen(["/bin/sh", "-c", command], env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   preexec_fn=_die_with_parent)
        name = secrets.token_hex(8)
        said: list[tuple[int, str]] = []
        changed = threading.Condition()
        self._running[name] = process, said, changed

        def forward(stream: int, pipe: Any) -> None:
            for line in pipe:
                with changed:
                    said.append((stream, line.decode("utf-8", "surrogateescape")))
                    changed.notify_all()

        threads = [threading.Thread(target=forward, args=(1, process.stdout), daemon=True), threading.Thread(target=forward, args=(2, process.stderr), daemon=True)]
        for thread in threads:
            thread.start()

        def watch() -> None:
            process.wait()
            for thread in threads:
                thread.join(timeout=1)
            with changed:
                said.append((0, ""))
                changed.notify_all()

        threading.Thread(target=watch, daemon=True).start()
        return name

    def follow(self, name: str, seconds: float) -> tuple[list[tuple[int, str]], int | None]:
        """Waits for output, at most `seconds`. Returns it, and the exit code after the last of it."""
        process, said, changed = self._running[name]
        with changed:
            changed.wait_for(lambda: bool(said), seconds)
            lines, said[:] = list(said), []
        ended = bool(lines) and lines[-1][0] == 0
        if ended:
            del self._running[name]
        code = process.returncode if ended else None
        return [line for line in lines if line[0]], 128 - code if code is not None and code < 0 else code

    def signal(self, name: str, number: int) -> None:
        if name in self._running:
            try:
                os.killpg(self._running[name][0].pid, number)
            except ProcessLookupError:
                pass


class Nodes:
    """All nodes of the Ray cluster that this process is connected to, also those that join later. Use it as a context
    manager."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._agents: dict[str, tuple[str, Any]] = {}  # by node name: Ray's id of the node, agent
        self._ready: set[str] = set()
        self.problem = ""  # of the last agent that failed
        self._folder = tempfile.TemporaryDirectory(prefix="zorse-ray-")
        self.socket = os.path.join(self._folder.name, "nodes")
        self._ended = threading.Event()

    def __enter__(self) -> Nodes:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.socket)
        self._server.listen(1024)
        self._look()
        threading.Thread(target=self._accept, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._server.close()
        with self._lock:
            for _, agent in self._agents.values():
                ray.kill(agent)
        self._folder.cleanup()

    # ---- who is there

    def _look(self) -> None:
        """Makes agents on new nodes, and asks all of them whether they are there."""
        alive: dict[str, str] = {}
        for node in sorted(ray.nodes(), key=lambda node: node["NodeID"]):
            if node["Alive"]:
                name = node.get("NodeName") or node["NodeManagerHostname"]
                alive[name if name not in alive else f"{name}-{node['NodeID'][:6]}"] = node["NodeID"]
        with self._lock:
            for name, identity in alive.items():
                if self._agents.get(name, ("",))[0] != identity:
                    self._agents[name] = identity, Agent.options(scheduling_strategy=NodeAffinitySchedulingStrategy(identity, soft=False)).remote()
            asked = {agent.ping.remote(): name for name, (identity, agent) in self._agents.items() if alive.get(name) == identity}
        answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_LOST_SECONDS) if asked else ([], [])
        ready = set()
        for reference in answered:
            name = asked[reference]
            try:
                ray.get(reference)
                ready.add(name)
            except ray.exceptions.RayError as error:
                with self._lock:
                    self.problem = f"{name}: {error}"
                    self._agents.pop(name, None)  # another agent is made, if Ray says that the node is alive
        with self._lock:
            self._ready = ready

    def _watch(self) -> None:
        while not self._ended.wait(_PING_SECONDS):
            try:
                self._look()
            except ray.exceptions.RayError:
                continue

    def ready(self) -> list[str]:
        """Names of the nodes that answer."""
        with self._lock:
            return sorted(self._ready)

    def _agent(self, node: str) -> Any:
        with self._lock:
            return self._agents[node][1] if node in self._agents else None

    def _lost(self, node: str) -> None:
        with self._lock:
            self._ready.discard(node)
            self._agents.pop(node, None)

    # ---- what they are

    def describe(self, names: list[str], tool: str, link_seconds: float) -> str:
        """The cluster file of these nodes, with measured links (zorse-cluster)."""
        agents = [self._agent(name) for name in names]
        place = f"{ray.get(agents[0].ping.remote())}:{ray.get(agents[0].port.remote())}"
        secret = secrets.token_hex(32)
        calls = [agent.call.remote([tool, "--all-nodes", "--quiet", "--measure", "--node-name", name, "--link-measure-seconds", str(link_seconds)],
                                   {"ZORSE_RANK": str(rank), "ZORSE_WORLD_SIZE": str(len(names)), "ZORSE_LOCAL_RANK": "0", "ZORSE_LOCAL_WORLD_SIZE": "1", "ZORSE_STORE": place,
                                    "ZORSE_JOB": "ray/describe", "ZORSE_SECRET": secret}) for rank, (name, agent) in enumerate(zip(names, agents))]
        results: list[tuple[int, str, str]] = ray.get(calls)
        for name, (code, _, errors) in zip(names, results):
            if code != 0:
                from ._tools import ZorseError
                raise ZorseError(f"zorse-cluster failed on node {name}: {errors.strip() or f'exit code {code}'}", code)
        return results[0][1]

    # ---- what zorse-run asks

    @property
    def start_command(self) -> str:
        return f"{sys.executable} -I -S {_SHIM} {self.socket} {{node}} {{command}}"

    @property
    def discovery_script(self) -> str:
        return f"{sys.executable} -I -S {_SHIM} {self.socket} --nodes"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as file:
            request = json.loads(file.readline())

            def answer(**message: Any) -> None:
                file.write(json.dumps(message).encode() + b"\n")
                file.flush()

            try:
                if "nodes" in request:
                    answer(stream=1, text="".join(name + "\n" for name in self.ready()))
                    answer(exit=0)
                else:
                    self._run(request, file, answer)
            except (BrokenPipeError, ConnectionError, ValueError):
                return

    def _run(self, request: dict[str, Any], file: Any, answer: Any) -> None:
        agent = self._agent(request["node"])
        if agent is None:
            answer(stream=2, text=f"error: node {request['node']} is not there\n")
            return answer(exit=_GONE)
        try:
            name = ray.get(agent.start.remote(request["command"], request["environment"]), timeout=20)
            threading.Thread(target=self._pass_signals, args=(file, agent, name), daemon=True).start()
            code = None
            while code is None:
                lines, code = ray.get(agent.follow.remote(name, 1.0), timeout=20)
                for stream, text in lines:
                    answer(stream=stream, text=text)
            answer(exit=code)
        except ray.exceptions.RayError:
            self._lost(request["node"])
            answer(exit=_GONE)
        except (BrokenPipeError, ConnectionError, ValueError):
            agent.signal.remote(name, int(signal.SIGKILL))
            raise

    @staticmethod
    def _pass_signals(file: Any, agent: Any, name: str) -> None:
        """Passes signals on. The end of the connection means that the rank must end."""
        try:
            for line in file:
                agent.signal.remote(name, json.loads(line)["signal"])
        except (OSError, ValueError):
            pass
        agent.signal.remote(name, int(signal.SIGKILL))
