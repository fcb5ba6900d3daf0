#!/usr/bin/env bash
# Claim: Gloo over a link of limited rate between two network namespaces: the bits of local transports, shards that cross once, a death that is named.
# Topic: Jobs
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "${1:-}" = --quick ] && shift
exec /usr/bin/python3 test/e2e/transport_namespaces.py "$@"
