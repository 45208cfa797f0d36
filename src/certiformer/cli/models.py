"""`certiformer models`"""

from __future__ import annotations

import typer


def models() -> None:
    """List the bundled models with their accuracy and size.

    Example: [bold]certiformer models[/bold]
    """
    from rich.box import SIMPLE
    from rich.table import Table

    from ..models import BUNDLED, DEFAULT, bundled
    from .terminal import console, say

    found = bundled()
    if not found:
        say(f"no bundled models in this installation; expected {', '.join(BUNDLED)}")
        raise typer.Exit(2)
    table = Table("model", "layers", "width", "norm", "words", "data", "dev", "test", "size", box=SIMPLE, padding=0)
    for model in found:
        facts = model.facts
        table.add_row(
            model.name + (" *" if model.name == DEFAULT else ""),
            str(facts["num_hidden_layers"]),
            str(facts["hidden_size"]),
            facts["layer_norm"],
            f"{facts['vocab_size']:,}",
            str(facts.get("data", "?")),
            _share(facts.get("dev_accuracy")),
            _share(facts.get("test_accuracy")),
            f"{facts['bytes'] / 2**20:.2f} MB",
        )
    output = console()
    output.print(table)
    output.print(f" * the default. Accuracy on the {found[0].facts.get('data', 'training')} dev and test sets.")


def _share(value: float | None) -> str:
    return "?" if value is None else f"{value:.2%}"
