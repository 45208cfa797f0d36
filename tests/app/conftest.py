"""A real server, started by the command, with a model whose words and labels are hostile."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra 'app' is not installed")
pytest.importorskip("uvicorn", reason="the extra 'app' is not installed")

TAG = "<img/src=x/onerror=alert(1)>"
LABELS = ("<b>bad</b>", "<script>alert(2)</script>")
SLOW = "one two three four five six seven eight nine ten eleven twelve"


@dataclass(frozen=True)
class Server:
    """Where it listens, and how to ask it."""

    port: int
    process: subprocess.Popen[str]

    @property
    def address(self) -> str:
        return f"http://localhost:{self.port}/"

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("localhost", self.port, timeout=60)
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        given = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, data, {**given, **{k.replace("_", "-"): v for k, v in headers.items()}})
        return connection

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        connection = self.open(method, path, body, **headers)
        answer = connection.getresponse()
        content = answer.read().decode()
        connection.close()
        kind = answer.headers.get("content-type", "")
        return answer.status, json.loads(content) if kind == "application/json" else content, dict(answer.headers)

    def ask(self, text: str, model: str = "sst-1", **more: Any) -> str:
        status, content, _ = self("POST", "/api/questions", {"text": text, "model": model, **more})
        assert status == 201, content
        return str(content["name"])

    def follow(self, name: str, first: int = 0) -> Iterator[dict[str, Any]]:
        """What is told of a question, to the end."""
        connection = self.open("GET", f"/api/questions/{name}/events", **{"Last-Event-ID": str(first)})
        answer = connection.getresponse()
        try:
            for line in answer:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        finally:
            connection.close()


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory, reference: Path) -> Path:
    """A folder that opens, with markup for words and labels."""
    folder = tmp_path_factory.mktemp("models") / "host<i>le"
    shutil.copytree(reference / "sst_1_small", folder)
    words = (folder / "vocab.txt").read_text().splitlines()
    words = [
        word if word in words[:5] or word in ("film", "and", "comedy") else f"{TAG}{k}" for k, word in enumerate(words)
    ]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = dict(enumerate(LABELS))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def server(hostile: Path) -> Iterator[Server]:
    limits = ["--workers", "2", "--queue", "3", "--longest", "12", "--most-sets", "300", "--seconds", "60"]
    models = ["--model", "sst-1", "--model", str(hostile)]
    command = [sys.executable, "-m", "certiformer", "app", "--no-browser", "--port", "0", *limits, *models]
    process = subprocess.Popen([*command, "--tolerance", "0.05"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"http://localhost:(\d+)/", line)
    assert found is not None, line
    yield Server(int(found[1]), process)
    process.terminate()
    process.wait(timeout=10)
