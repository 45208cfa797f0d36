"""Put the tables and plots of `certiformer reproduce` into docs/results.md: `make results`.

The tables go between `<!-- table: NAME -->` and `<!-- end -->`, the plots between `<!-- plot: NAME, TITLE -->` and
`<!-- end plot -->`, the images into docs/images, and the figures behind the tables, every radius included, into
docs/results. The sentences around the tables are written by hand and stay.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "results.md"
TABLE = re.compile(r"(?P<head><!-- table: (?P<name>[\w-]+) -->\n).*?(?P<tail><!-- end -->)", re.DOTALL)
PLOT = re.compile(
    r"(?P<head><!-- plot: (?P<name>[\w-]+), (?P<title>[^>]+) -->\n).*?(?P<tail><!-- end plot -->)", re.DOTALL
)


def main(folder: Path) -> None:
    """Renew the page from a folder of results; what the folder lacks stays as it is."""
    used: list[str] = []

    def fill(found: re.Match[str]) -> str:
        source = folder / f"{found['name']}.md"
        if not source.is_file():
            return found[0]
        used.append(found["name"])
        return f"{found['head']}\n{source.read_text(encoding='utf-8')}\n{found['tail']}"

    def show(found: re.Match[str]) -> str:
        name = found["name"]
        if not (folder / "images" / f"{name}.png").is_file():
            return found[0]
        used.append(f"{name}.png")
        return f"{found['head']}\n![{found['title']}](images/{name}.png)\n\n{found['tail']}"

    page = TABLE.sub(fill, PAGE.read_text(encoding="utf-8"))
    tables = tuple(used)
    PAGE.write_text(PLOT.sub(show, page), encoding="utf-8")
    for name in tables:
        for suffix in ("csv", "json"):
            copy(folder / f"{name}.{suffix}", DOCS / "results")
    for image in sorted((folder / "images").glob("*.png")):
        copy(image, DOCS / "images")
    print(f"{PAGE.name}: renewed {', '.join(used) or 'nothing'}")


def copy(source: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    shutil.copyfile(source, folder / source.name)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
