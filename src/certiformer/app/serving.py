"""What the person who runs the app decides: which models, where it listens, and how much a visitor may ask for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..core.names import Checked, option, whole
from ..errors import InputError
from ..named import BUNDLED, DEFAULT, HUB, check_name
from ..numbers import number

LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class Serving(Checked):
    """How the app is served."""

    model: tuple[str, ...] = option(
        (),
        "A model that visitors may choose: a bundled one, a folder or hf:NAME; may be repeated. Default: the bundled.",
    )
    host: str = option("127.0.0.1", "Address to listen at; 0.0.0.0 is every address of this machine.")
    port: int = option(7860, "Port to listen at; 0 takes a free one.")
    browser: bool = option(True, "Open the page in the browser.")
    workers: int = option(2, "Questions that are answered at once, each in a process of its own.")
    queue: int = option(16, "Questions that may wait; further ones are turned away.")
    seconds: float = option(120.0, "Seconds that an answer may take; what is proved by then is kept.")
    longest: int = option(64, "Words that a sentence may have.")
    most_sets: int = option(500, "Sets of words that a question may be about.")
    allow_host: tuple[str, ...] = option((), "Host name the page is asked for by, behind a proxy; may be repeated.")
    frame: tuple[str, ...] = option((), "Site that may show the page in a frame; may be repeated.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("workers", "longest", "most_sets"):
            whole(name, getattr(self, name), least=1)
        whole("queue", self.queue)
        if not 0 <= self.port < 2**16:
            raise InputError(f"port={self.port}: expected a port from 0 to 65535")
        if not (number(self.seconds) and 0 < self.seconds < float("inf")):
            raise InputError(f"seconds={self.seconds!r}: expected a number of seconds above 0")
        for site in self.frame:
            if (
                not site.isprintable()
                or any(c in site for c in " ;,'\"")
                or not site.startswith(("https://", "http://"))
            ):
                raise InputError(f"frame={site!r}: expected a site such as https://example.org")

    @property
    def hosts(self) -> frozenset[str] | None:
        """The names that the page may be asked for by; None for any, where it listens to more than this machine."""
        if self.host not in LOCAL and not self.allow_host:
            return None
        return frozenset(name.lower() for name in (*LOCAL, *self.allow_host))

    def shelf(self) -> dict[str, str]:
        """The models by the names that visitors know them by. A visitor can name these and nothing else."""
        found: dict[str, str] = {}
        for source in self.model or (DEFAULT, *(name for name in BUNDLED if name != DEFAULT)):
            check_name(source)
            name = _shown(source)
            if name in found:
                raise InputError(f"model={source!r}: there is a model called {name!r} already")
            found[name] = source if source in BUNDLED or source.startswith(HUB) else os.path.abspath(source)
        return found


def _shown(source: str) -> str:
    """A model's name without the folders above it."""
    return (
        source
        if source in BUNDLED
        else source.removeprefix(HUB)
        if source.startswith(HUB)
        else Path(source).resolve().name
    )
