"""`certiformer app`"""

from __future__ import annotations

from ..app import Serving
from ..options import Options
from .flags import Given, command
from .terminal import say


@command(Serving, Options, argument=(), without=("timeout", "budget"))
def app(given: Given) -> int:
    """Open a page in the browser: type a sentence and watch its words being certified.

    Example: [bold]certiformer app --model sst-2 --model path/to/folder[/bold]
    """
    from ..app.run import serve

    serve(given(Serving), given(Options, device=given.device), say)
    return 0
