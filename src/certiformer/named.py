"""Models by name: which are bundled, and whether a name can be one at all. Nothing here needs torch."""

from __future__ import annotations

import os

from .errors import ModelError

BUNDLED = ("sst-1", "sst-2", "sst-3", "sst-2-standard")
DEFAULT = "sst-2"
HUB = "hf:"  # before a name on the Hugging Face hub


def check_name(source: str | os.PathLike[str]) -> None:
    """Refuse a name that is neither of a bundled model, nor of a folder, nor on the hub."""
    named = os.fspath(source)
    if named not in BUNDLED and not named.startswith(HUB) and not os.path.exists(named):
        raise ModelError(
            f"no model {named!r}: neither a folder nor one of the bundled models {', '.join(BUNDLED)}; "
            f"a name on the Hugging Face hub is written '{HUB}{named}'"
        )
