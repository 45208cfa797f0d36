"""Files as strangers make them: one clear line, a non-zero exit code, bounded memory; and the command itself."""

from __future__ import annotations

import ast
import io
import json
import os
import random
import struct
import subprocess
import sys
import tokenize
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from made import folder, made, packed, put_together, taken_apart

from certiformer_checker.__main__ import judge, main
from certiformer_checker.folder import Folder
from certiformer_checker.numbers import Wrong
from certiformer_checker.reader import payload

CHECKER = Path(__file__).resolve().parents[1]
MEGABYTE = 2**20


def line_of(tmp_path: Path, data: bytes, model: Path | None = None) -> tuple[int, str]:
    path = tmp_path / "some.cert"
    path.write_bytes(data)
    return judge(path, model, False, lambda _: None)


def safetensors(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return packed(struct.pack("<Q", len(text)) + text + body)


HOSTILE = {
    "empty": (b"", "not a certificate"),
    "foreign": (b"\x80\x04\x95pickle", "not a certificate"),
    "old version": (packed(b"x", version=b"0"), "version"),
    "head only": (b"CERTIFORMER CERTIFICATE 1\n\x00", "truncated"),
    "huge": (packed(b"x", size=2**40), "limit"),
    "says less": (packed(b"x" * 1000, size=10), "another number"),
    "says more": (packed(b"x" * 1000, size=2000), "another number"),
    "something behind": (packed(b"x" * 10) + b"more", "another number"),
    "no header": (packed(b"\xff" * 8), "truncated"),
    "header is no JSON": (safetensors(b"{"), "not JSON"),
    "header is a list": (safetensors([]), "no object"),
    "deep": (safetensors(b"[" * 100_000), "not JSON"),
    "NaN": (safetensors(b'{"a": NaN}'), "not JSON"),
    "twice": (safetensors(b'{"a": 1, "a": 2}'), "twice"),
    "many digits": (safetensors(b'{"a": ' + b"9" * 10_000 + b"}"), "not JSON"),
    "offsets": (safetensors({"a": {"dtype": "F64", "shape": [1], "data_offsets": [-8, 0]}}), "offsets"),
    "overlap": (
        safetensors({n: {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]} for n in "ab"}, bytes(8)),
        "not where",
    ),
    "shape bomb": (
        safetensors({"a": {"dtype": "F64", "shape": [2**27, 2**27], "data_offsets": [0, 8]}}, bytes(8)),
        "not where",
    ),
    "type": (safetensors({"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8)), "of no kind"),
    "no words": (safetensors({}), "metadata"),
    "words are none": (safetensors({"__metadata__": {"certificate": "[]"}}), "expected"),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_file_gets_one_clear_line(name: str, tmp_path: Path) -> None:
    data, word = HOSTILE[name]
    code, line = line_of(tmp_path, data)
    assert code == 2
    assert word in line
    assert "\n" not in line


def test_a_decompression_bomb_takes_no_memory(tmp_path: Path) -> None:
    bomb = (
        b"CERTIFORMER CERTIFICATE 1\n" + struct.pack("<Q", 1000) + bytes(32) + zlib.compress(bytes(400 * MEGABYTE), 9)
    )
    path = tmp_path / "bomb.cert"
    path.write_bytes(bomb)
    tracemalloc.start()
    with pytest.raises(Wrong):
        payload(path)
    assert tracemalloc.get_traced_memory()[1] < 8 * MEGABYTE
    tracemalloc.stop()


def test_every_truncation_and_every_flipped_byte_is_rejected(tmp_path: Path) -> None:
    data, rng = made("ball"), random.Random(0)
    for _ in range(60):
        assert line_of(tmp_path, data[: rng.randrange(len(data))])[0] == 2
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        assert line_of(tmp_path, bytes(flipped))[0] == 2


def test_ops_that_do_not_fit_their_shapes_are_refused(tmp_path: Path) -> None:
    words, numbers = taken_apart(made("points"))
    for i, node in enumerate(words["graph"]):
        if node["op"] in ("reshape", "permute", "slice", "scale", "shift", "softmax_of_differences"):
            changed = json.loads(json.dumps(words))
            changed["graph"][i]["shape"] = [1, *(size // 2 or 1 for size in node["shape"][1:])]
            if changed["graph"][i]["shape"] != node["shape"]:
                assert line_of(tmp_path, put_together(changed, numbers))[0] in (1, 2), i


def test_the_folder_is_compared_bit_by_bit(tmp_path: Path) -> None:
    words, numbers = taken_apart(made("ball"))
    model = folder("ball")
    assert line_of(tmp_path, put_together(words, numbers), model)[0] == 0
    names = [n for n in numbers if n.startswith("graph.") and n.endswith("weight")]
    for change in ("weight", "embedding", "hash", "id", "other folder"):
        other, held, at = json.loads(json.dumps(words)), {n: v.copy() for n, v in numbers.items()}, model
        if change == "weight":
            flat = held[names[0]].reshape(-1)
            flat[0] = np.nextafter(flat[0], flat.dtype.type(np.inf))
        elif change == "embedding":
            held["input.embeddings"][0, 0] += 1e-12
        elif change == "hash":
            other["model"]["weights"] = "0" * 64
        elif change == "id":
            other["input"]["ids"][1] += 1
        else:
            at = folder("standard")
        code, line = line_of(tmp_path, put_together(other, held), at)
        assert (code, "folder" in line) == (1, True), change


def test_the_weights_of_a_folder_are_read_in_every_type() -> None:
    weights = Folder(folder("ball")).weights
    assert all(value.dtype == np.float32 for value in weights.values())
    from certiformer_checker.folder import as_float32

    assert as_float32("BF16", np.array([0x3F80, 0xC000], np.uint16), "w").tolist() == [1.0, -2.0]
    with pytest.raises(Wrong):
        as_float32("I64", np.array([1]), "w")


@pytest.mark.parametrize("kind", ["ball", "standard", "pieces", "anchors"])
def test_exact_agrees(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("flint", reason="python-flint is not installed")
    path = tmp_path / "made.cert"
    path.write_bytes(made(kind))
    assert judge(path, folder(kind), True, lambda _: None)[0] == 0
    words, numbers = taken_apart(made(kind))
    numbers["claim.margin"] = numbers["claim.margin"] * (1 + 1e-3) + 1e-3
    path.write_bytes(put_together(words, numbers))
    code, line = judge(path, None, True, lambda _: None)
    assert (code, "margin" in line) == (1, True)


def test_the_command_needs_numpy_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "made.cert"
    path.write_bytes(made("ball"))
    run = [sys.executable, "-c", "import sys\nsys.argv = ['check.py', *sys.argv[1:]]\n"]
    run[2] += f"sys.path.insert(0, {str(CHECKER)!r})\nfrom certiformer_checker.__main__ import main\ncode = main()\n"
    run[2] += "assert not {'torch', 'certiformer', 'safetensors', 'scipy', 'flint'} & set(sys.modules)\nsys.exit(code)"
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*run, str(path), str(folder("ball"))], capture_output=True, text=True, env=clean, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("holds: ")
    assert len(done.stdout.splitlines()) == 1
    done = subprocess.run(
        [sys.executable, str(CHECKER / "check.py"), str(tmp_path / "none.cert")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 1
    assert not done.stderr


def test_a_folder_of_certificates_is_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("ball", "points"):
        (tmp_path / f"{kind}.cert").write_bytes(made(kind))
    assert main([str(tmp_path), str(folder("ball"))]) == 0
    assert "2 of 2 certificates hold" in capsys.readouterr().out
    (tmp_path / "broken.cert").write_bytes(made("ball")[:-1])
    assert main([str(tmp_path)]) == 2
    out = capsys.readouterr().out
    assert "2 of 3 certificates hold" in out
    assert "not compared" in out
    assert main([str(tmp_path / "nothing")]) == 2


def test_it_stays_a_program_that_a_person_can_read() -> None:
    """Lines of code: without blank lines, comments and docstrings."""
    total = 0
    for path in sorted((CHECKER / "certiformer_checker").glob("*.py")):
        source = path.read_text()
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                lines |= set(range(token.start[0], token.end[0] + 1)) if token.string else set()
        for node in ast.walk(ast.parse(source)):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                first = body[0]
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
        assert not any(word in source for word in ("import torch", "import certiformer\n", "pickle", "eval(", "exec("))
        total += len(lines)
    assert total <= 1520
