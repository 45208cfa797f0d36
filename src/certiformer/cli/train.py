"""`certiformer train`"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .progress import progress_bar
from .terminal import say

Data = Annotated[str, typer.Option(help="sst, yelp, or a file or folder of .csv, .tsv or .jsonl tables.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder that holds the data; default: CERTIFORMER_DATA, else a download.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]

if TYPE_CHECKING:
    from ..training import Progress


class Norm(str, Enum):
    """Which LayerNorm."""

    no_var = "no_var"
    standard = "standard"
    none = "none"


def train(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder to write the model to.")],
    data: Data = "sst",
    data_dir: DataDir = None,
    layers: Annotated[int, typer.Option(help="Number of Transformer layers.")] = 1,
    hidden: Annotated[int, typer.Option(help="Width of the embeddings.")] = 256,
    feed_forward: Annotated[
        int | None, typer.Option(help="Width of the feed-forward layers; default: twice hidden.")
    ] = None,
    heads: Annotated[int, typer.Option(help="Attention heads.")] = 4,
    layer_norm: Annotated[
        Norm, typer.Option(help="no_var leaves out the division by the standard deviation.")
    ] = Norm.no_var,
    vocab_size: Annotated[int, typer.Option(help="Most words to keep.")] = 15000,
    max_length: Annotated[int, typer.Option(help="Longest text in tokens, with [CLS] and [SEP].")] = 128,
    epochs: Annotated[int, typer.Option(help="Passes over the training part.")] = 10,
    batch_size: Annotated[int, typer.Option(help="Texts a step.")] = 128,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 5e-4,
    weight_decay: Annotated[float, typer.Option(help="Weight decay of the matrices.")] = 0.05,
    dropout: Annotated[float, typer.Option(help="Dropout.")] = 0.1,
    word_dropout: Annotated[float, typer.Option(help="Share of words shown as unknown.")] = 0.1,
    score_penalty: Annotated[float, typer.Option(help="Weight of the penalty on large attention scores.")] = 0.0,
    embedding_noise: Annotated[float, typer.Option(help="Gaussian noise on the embeddings.")] = 0.0,
    adversarial: Annotated[float, typer.Option(help="Length of a gradient step on each word to train on too.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
    device: Device = "auto",
    float16: Annotated[bool, typer.Option("--float16", help="Store the weights in half precision.")] = False,
    bfloat16: Annotated[bool, typer.Option("--bfloat16", help="Compute in bfloat16.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train the paper's classifier from scratch; run it again to continue after a kill.

    Example: [bold]certiformer train --data sst --layers 2 --out runs/sst_2[/bold]
    """
    from ..data import load_data
    from ..models import Config
    from ..training import Recipe
    from ..training import train as run

    config = Config(
        num_hidden_layers=layers,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=feed_forward or 2 * hidden,
        num_attention_heads=heads,
        layer_norm=layer_norm.value,
        max_position_embeddings=max_length,
        dropout=dropout,
    )
    recipe = Recipe(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        seed=seed,
        precision="bfloat16" if bfloat16 else "float32",
        score_penalty=score_penalty,
        embedding_noise=embedding_noise,
        adversarial=adversarial,
        word_dropout=word_dropout,
    )
    loaded = load_data(data, data_dir=data_dir)
    try:
        with _progress(quiet=quiet) as progress:
            trained = run(
                config,
                loaded,
                out,
                recipe=recipe,
                device=device,
                stored_as="float16" if float16 else "float32",
                command=portable(context.obj),
                progress=progress,
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped; the same command continues from the last checkpoint in {out}", err=True)
        raise typer.Exit(130) from None
    test = "no test part" if trained.test_accuracy is None else f"test {trained.test_accuracy:.2%}"
    typer.echo(f"{trained.folder}: dev {trained.dev_accuracy:.2%}, {test}, trained in {trained.seconds:.0f} s")


def portable(command: str) -> str:
    """The command as it goes into a model card: paths of this machine become their last part, or go."""
    kept: list[str] = []
    words = iter(shlex.split(command))
    for word in words:
        option, equals, value = word.partition("=")
        if option not in ("--data", "--data-dir", "--out"):
            kept.append(word)
            continue
        value = value if equals else next(words, "")
        if option != "--data-dir":
            kept += [option, Path(value).resolve().name]
    return shlex.join(kept)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A callback for training: a live bar on a terminal, a line an evaluation elsewhere, None when quiet."""
    with progress_bar("training", None, quiet=quiet) as bar:
        if quiet:
            yield None
        elif bar.live is None:
            yield lambda p: say(_line(p)) if p.evaluated else None
        else:
            yield lambda p: bar.advance(p.step, total=p.steps, told=_line(p))


def _line(p: Progress) -> str:
    accuracy = "" if p.dev_accuracy is None else f", dev {p.dev_accuracy:.2%} (best {p.best_accuracy:.2%})"
    return f"epoch {p.epoch:.1f}, loss {p.loss:.4f}{accuracy}"
