"""A small vision Transformer on scikit-learn's handwritten digits, certified patch by patch.

    pip install 'certiformer[hf,report]' scikit-learn
    python examples/digits_vit.py --out digits.png

A picture of 8 x 8 pixels is cut into 16 patches of 2 x 2. The certified radius of a patch says how far its four pixels
(black 0 to white 1) may move, in the norm asked for, with the answer proved unchanged. The picture shows some digits
and, beside each, the radius of every patch: dark patches decide. Training takes seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import certiformer as cf

SIDE, PATCH, CLASSES = 8, 2, 10
SHADES = " .:-=+*#%@"


def digits() -> tuple[Tensor, Tensor]:
    """All 1,797 pictures [n, 1, 8, 8] with values from 0 to 1, and their digits."""
    from sklearn.datasets import load_digits

    data = load_digits()
    pictures = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16
    return pictures, torch.tensor(data.target)


def vit(*, layers: int, width: int) -> Any:
    """Hugging Face's ViT, freshly initialised."""
    import transformers

    config = transformers.ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * width,
        image_size=SIDE,
        patch_size=PATCH,
        num_channels=1,
        num_labels=CLASSES,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        id2label={i: str(i) for i in range(CLASSES)},
        label2id={str(i): i for i in range(CLASSES)},
    )
    return transformers.ViTForImageClassification(config)


def train(model: Any, pictures: Tensor, labels: Tensor, *, epochs: int, noise: float = 0.1, seed: int = 0) -> None:
    """Adam on noisy pictures: a little noise makes the radii larger."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    steps = epochs * (len(pictures) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=max(1, steps))
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(pictures), generator=generator)
        for batch in order[: len(order) // 64 * 64].view(-1, 64):
            noisy = pictures[batch] + noise * torch.randn(pictures[batch].shape, generator=generator)
            loss = nn.functional.cross_entropy(model(pixel_values=noisy).logits, labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()


def accuracy(model: Any, pictures: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float((model(pixel_values=pictures).logits.argmax(dim=1) == labels).double().mean())


def shaded(values: Tensor) -> list[str]:
    """A small picture in characters, two for each pixel."""
    scaled = (values / values.max().clamp(min=1e-12) * (len(SHADES) - 1)).round().long()
    return ["".join(2 * SHADES[int(v)] for v in row) for row in scaled]


def draw(pictures: Sequence[Tensor], maps: Sequence[Tensor], titles: Sequence[str], out: Path) -> None:
    """Digits above, the certified radius of every patch below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        2, len(pictures), layout="constrained", figsize=(2.4 * len(pictures) + 0.6, 4.6), squeeze=False
    )
    top = max(float(m.max()) for m in maps)
    shown: Any = None
    for column, (picture, radii, title) in enumerate(zip(pictures, maps, titles, strict=True)):
        axes[0, column].imshow(picture[0], cmap="gray", vmin=0, vmax=1)
        axes[0, column].set_title(title, fontsize=10)
        shown = axes[1, column].imshow(radii, cmap="viridis", vmin=0, vmax=top)
        for axis in axes[:, column]:
            axis.set_xticks([])
            axis.set_yticks([])
    axes[1, 0].set_ylabel("certified radius")
    figure.colorbar(shown, ax=axes[1, :].tolist(), fraction=0.03)
    figure.savefig(out, dpi=110)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="write the picture here (needs matplotlib)")
    parser.add_argument("--count", type=int, default=3, help="how many digits to certify")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--method", default="backward-forward", help="backward proves more and takes longer")
    parser.add_argument("--norm", default="2")
    parser.add_argument("--tolerance", type=float, default=0.05)
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    pictures, labels = digits()
    held = torch.arange(len(pictures)) % 5 == 0
    network = vit(layers=given.layers, width=given.width)
    train(network, pictures[~held], labels[~held], epochs=given.epochs)
    print(f"accuracy {accuracy(network, pictures[held], labels[held]):.1%} on {int(held.sum())} digits held out")
    certifier = cf.Certifier(network, method=given.method, tolerance=given.tolerance)  # captured once for all pictures
    shown, maps, titles = [], [], []
    for i in held.nonzero()[: given.count, 0].tolist():
        picture, grid = pictures[i], SIDE // PATCH
        result = certifier.radius(picture, norm=given.norm)
        found = certifier.attack(picture, norm=given.norm)
        radii = torch.tensor(result.radii).view(grid, grid)
        smallest, (place, least) = min(found.radii), result.smallest
        row, column = divmod(place[0], grid)
        print(f"\na {int(labels[i])}, read as {certifier.model.labels[result.label]} ({result.seconds:.1f} s)")
        blown = radii.repeat_interleave(PATCH, dim=0).repeat_interleave(PATCH, dim=1)
        for left, right in zip(shaded(picture[0]), shaded(blown), strict=True):
            print(f"  {left}   {right}")
        print(f"  smallest radius {least:.3g} at row {row}, column {column}; an attack needs {smallest:.3g} somewhere")
        shown.append(picture)
        maps.append(radii)
        titles.append(f"{int(labels[i])}: {least:.2g} to {float(radii.max()):.2g}")
    if given.out is not None:
        draw(shown, maps, titles, given.out)
        print(f"\nwritten: {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
