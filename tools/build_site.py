"""The sources of the site: docs/, pages from outside of it, and pages that are made from the package.

    python tools/build_site.py FOLDER         # then: mkdocs build, with docs_dir FOLDER

Options and commands are read from the package, so their pages cannot be out of date. A link to a file of the repository
that has no page becomes plain text. What comes out is plain Markdown, for whichever generator reads mkdocs.yml.
"""

from __future__ import annotations

import dataclasses
import inspect
import posixpath
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "src/certiformer/core/README.md": "project/core.md",
}
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)]*)?\)")
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def build(folder: Path) -> None:
    """Write all sources of the site to an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for source, page in OUTSIDE.items():
        (folder / page).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / source, folder / page)
    (folder / "options.md").write_text(options_page(), encoding="utf-8")
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")
    origins = {page: source for source, page in OUTSIDE.items()}
    for path in folder.rglob("*.md"):
        name = path.relative_to(folder).as_posix()
        path.write_text(linked(path.read_text(encoding="utf-8"), origins.get(name, f"docs/{name}")), encoding="utf-8")


def linked(markdown: str, source: str) -> str:
    """A page with its links led to where things are on the site; code is left alone."""
    parts = CODE.split(markdown)
    return "".join(part if CODE.fullmatch(part) else LINK.sub(lambda m: led(m, source), part) for part in parts)


def led(found: re.Match[str], source: str) -> str:
    """A link of a file of the repository, as it is on the site."""
    target, anchor = found["target"], found["anchor"] or ""
    if not target or re.match(r"[a-z]+:", target):
        return found[0]
    there = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    own = OUTSIDE.get(source, source.removeprefix("docs/"))
    if there in OUTSIDE:
        there = OUTSIDE[there]
    elif there.startswith("docs/"):
        there = there.removeprefix("docs/")
    else:
        return found["text"]
    relative = posixpath.relpath(there, posixpath.dirname(own) or ".")
    return f"{found['picture']}[{found['text']}]({relative}{anchor})"


def options_page() -> str:
    """Every keyword argument of the functions, with its default and what it is for."""
    from certiformer import options
    from certiformer.sweep.options import SweepCall

    calls = {
        "radius, radii": options.RadiusCall,
        "certify": options.CertifyCall,
        "bounds": options.BoundsCall,
        "attack": options.AttackCall,
        "importance": options.ImportanceCall,
        "verify": options.VerifyCall,
        "sweep": SweepCall,
    }
    takes: dict[str, tuple[Any, list[str]]] = {}
    for name, kind in calls.items():
        for f in dataclasses.fields(kind):
            takes.setdefault(f.name, (f, []))[1].append(name)
    rows = []
    for name, (f, where) in sorted(takes.items()):
        told = f.metadata.get("help", "")
        rows.append(
            f"| `{name}` | `{_default(f)}` | {told} | {'all' if len(where) == len(calls) else ', '.join(where)} |"
        )
    head = "# Options\n\nThe keyword arguments of `cf.radius` and the others, and fields of `cf.Options`.\n\n"
    return head + "| option | default | what it is | of |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _default(f: Any) -> str:
    return "required" if f.default is dataclasses.MISSING else repr(f.default)


def commands_page() -> str:
    """Every command with its options, as `--help` has them."""
    import typer

    from certiformer.cli.commands import COMMANDS, app

    group: Any = typer.main.get_command(app)
    parts = ["# Command line\n\nThe same as `certiformer COMMAND --help`.\n"]
    for name in COMMANDS:
        command = group.commands[name]
        told = re.sub(r"\[/?bold\]", "`", inspect.cleandoc(command.help or ""))
        rows = [_row(p) for p in command.params if p.param_type_name == "option" and not getattr(p, "hidden", False)]
        table = "| option | default | what it is |\n|---|---|---|\n" + "\n".join(rows)
        parts.append(f"## {name}\n\n{told}\n\n{table}\n")
    return "\n".join(parts)


def _row(option: Any) -> str:
    names = ", ".join(f"`{n}`" for n in (*option.opts, *option.secondary_opts))
    default = option.default
    default = ", ".join(map(str, default)) if isinstance(default, (list, tuple)) else default
    nothing = default is None or default is False or default == "" or callable(default)
    shown = "" if nothing else f"`{getattr(default, 'value', default)}`"
    told = (option.help or "").replace("|", "\\|")
    return f"| {names} | {shown} | {told} |"


if __name__ == "__main__":
    build(Path(sys.argv[1]))
