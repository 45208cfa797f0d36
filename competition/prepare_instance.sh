#!/bin/bash
# Before an instance, not timed. Arguments: "v1", category, ONNX file, VNN-LIB file. Not 0: this instance is left out.
set -euo pipefail
[ "${1:-}" = v1 ] || { echo "expected the version v1, found '${1:-}'" >&2; exit 1; }
[ $# -eq 4 ] || { echo "expected 4 arguments, found $#" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${CERTIFORMER_PYTHON:-$here/.venv/bin/python}
for file in "$3" "$4"; do
    [ -r "$file" ] || { echo "$file cannot be read" >&2; exit 1; }
done
# libraries and files are in memory when the clock starts
"$python" -c 'import certiformer.formats, torch.export, onnxruntime, sys; [open(p, "rb").read() for p in sys.argv[1:]]' "$3" "$4"
