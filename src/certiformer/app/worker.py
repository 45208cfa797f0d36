"""A process that answers questions: one JSON object a line, in on stdin and out on stdout.

The first line says which models there are. A line with `stop` ends the question at hand; the end of stdin, the process.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import signal
import sys
import threading
import traceback
from typing import Any, TextIO

from ..api import Certifier
from ..errors import CertiformerError, ModelError, out_of_memory
from ..models import Model, load
from ..models.device import pick_device
from ..options import Options
from ..text import visible
from .answer import Answer, Limits
from .asking import Asked

FACTS = {"num_hidden_layers": "layers", "hidden_size": "width", "vocab_size": "words", "test_accuracy": "accuracy"}


class Worker:
    """The models, opened once, and the question at hand."""

    def __init__(self, out: TextIO, setup: dict[str, Any], stopped: threading.Event) -> None:
        self.out, self.stopped = out, stopped
        self.limits = Limits(**setup["limits"])
        self.options = Options(**{**setup["options"], "device": str(pick_device(setup["options"]["device"] or "auto"))})
        self.certifiers = {
            name: Certifier(_opened(name, source), self.options) for name, source in setup["models"].items()
        }

    def describe(self) -> list[dict[str, Any]]:
        """What visitors should know of each model."""
        return [described(name, certifier.model) for name, certifier in self.certifiers.items()]

    def answer(self, asked: Asked) -> None:
        """Whatever happens, the last message is the end."""
        certifier = self.certifiers[asked.model]
        answer = Answer(certifier, asked, self.limits, self.tell, self.stopped.is_set)
        try:
            answer.give(self.options)
        except CertiformerError as error:
            self.tell("end", state="failed", message=str(error))
        except Exception as error:
            if out_of_memory(error):
                told = "out of memory: fewer words at once or a shorter text need less"
                return self.tell("end", state="failed", message=told)
            traceback.print_exc()
            self.tell("end", state="failed", message=f"unexpected {type(error).__name__}; the server's log has more")

    def tell(self, kind: str, **content: Any) -> None:
        if "files" in content:
            content["files"] = {name: base64.b64encode(held).decode() for name, held in content["files"].items()}
        print(json.dumps({"kind": kind, **content}, allow_nan=False), file=self.out, flush=True)


def _opened(name: str, source: str) -> Model:
    model = load(source)
    if model.tokenizer is None:
        raise ModelError(f"model {name!r} reads no text, which is what visitors type")
    return model


def described(name: str, model: Model) -> dict[str, Any]:
    """A model as it is named on the page."""
    facts = {shown: model.facts[key] for key, shown in FACTS.items() if isinstance(model.facts.get(key), (int, float))}
    return {"name": visible(name), "labels": [visible(label) for label in model.labels], "facts": facts}


def main() -> int:
    """Open the models, say so, and answer one question after the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then ends this process
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anybody prints goes to the log
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    stopped = threading.Event()
    threading.Thread(target=_listen, args=(waiting, stopped), daemon=True).start()
    try:
        worker = Worker(out, waiting.get(), stopped)
    except CertiformerError as error:
        print(json.dumps({"kind": "failed", "message": str(error)}), file=out, flush=True)
        return 2
    worker.tell("ready", models=worker.describe())
    while True:
        worker.answer(Asked(**waiting.get()))


def _listen(waiting: queue.SimpleQueue[dict[str, Any]], stopped: threading.Event) -> None:
    for line in sys.stdin:
        content = json.loads(line)
        if content.get("stop"):
            stopped.set()
        else:
            stopped.clear()
            waiting.put(content)
    os._exit(0)  # nobody asks any longer


if __name__ == "__main__":
    sys.exit(main())
