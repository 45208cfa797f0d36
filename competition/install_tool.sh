#!/bin/bash
# Install certiformer for VNN-COMP: an environment of its own beside this script. Argument: "v1".
set -euo pipefail
[ "${1:-}" = v1 ] || { echo "expected the version v1, found '${1:-}'" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
"$python" -m venv "$here/.venv"
"$here/.venv/bin/python" -m pip install --quiet --disable-pip-version-check "$here/..[onnx]"
"$here/.venv/bin/python" -m certiformer --version
