#!/usr/bin/env bash
# Gloo over a link of limited rate between two network namespaces: the bits of local transports, shards that cross once, a death that is named.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/transport_namespaces.py "$@"
