#!/bin/bash
# One instance. Arguments: "v1", category, ONNX file, VNN-LIB file, results file, timeout in seconds.
# The results file holds unsat, sat and the counterexample, timeout, unknown or error.
set -uo pipefail
[ "${1:-}" = v1 ] || { echo "expected the version v1, found '${1:-}'" >&2; exit 1; }
[ $# -eq 6 ] || { echo "expected 6 arguments, found $#" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${CERTIFORMER_PYTHON:-$here/.venv/bin/python}
results=$5 limit=$6
rm -f "$results"
echo "certiformer: category '$2', $(basename "$3"), $(basename "$4"), $limit s"
# a second for starting and writing; whatever does not end by itself is ended
asked=$(awk -v t="$limit" 'BEGIN { printf "%.3f", (t > 4 ? t - 1 : t * 3 / 4) }')
timeout --kill-after=2 "$limit" "$python" -m certiformer verify "$3" "$4" --timeout "$asked" --out "$results"
code=$?
if [ ! -s "$results" ]; then
    case $code in
        124 | 137) echo timeout >"$results" ;;
        *) echo error >"$results" ;;
    esac
fi
exit 0
