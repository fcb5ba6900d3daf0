"""Runs a command on a node of a Ray cluster, for zorse-run --start-command: passes it to the server of zorse.ray, and
prints what the command prints. Does not import Ray, because it starts once per rank.

    _ray_exec.py SOCKET NODE COMMAND     exit code of the command; 255: the node is gone
    _ray_exec.py SOCKET --nodes          prints the names of the nodes that answer
"""
import json
import os
import signal
import socket
import sys


def main():
    path, what, *rest = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        if what == "--nodes":
            request = {"nodes": True}
        else:
            # The secret is only in the environment: command lines are visible to other users.
            request = {"node": what, "command": rest[0], "environment": {name: value for name, value in os.environ.items() if name.startswith("ZORSE_")}}
        signal.signal(signal.SIGTERM, lambda number, frame: server.sendall(b'{"signal": %d}\n' % number))
        server.sendall(json.dumps(request).encode() + b"\n")
        for line in server.makefile("rb"):
            answer = json.loads(line)
            if "exit" in answer:
                return answer["exit"]
            os.write(answer["stream"], answer["text"].encode("utf-8", "surrogateescape"))
    return 255


if __name__ == "__main__":
    sys.exit(main())
