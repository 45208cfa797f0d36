"""One command line for everything beside the package: by itself, and behind `certiformer`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from certiformer_reproduction.command_line import main
from certiformer_reproduction.pages import results

COMMANDS = ("tables", "plots", "bench", "zoo", "recipes", "tightness", "results", "performance")
PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def test_it_runs_where_typer_and_rich_are_not_installed() -> None:
    code = (
        "import sys\n"
        "for name in ('typer', 'rich', 'matplotlib', 'transformers'):\n"
        "    sys.modules[name] = None\n"
        "from certiformer_reproduction.command_line import main\n"
        "sys.exit(main(['bench', 'cpu-table', '--only', 'N=1 d=64', '--repeats', '1', '--tolerance', '0.5']))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "backward-forward: N=1 d=64" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert f"certiformer_reproduction {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ([], "COMMAND"),
        (["nothing"], "'nothing'"),
        (["tables", "main", "--norms", "x"], "norm='x'"),
        (["tightness", "sst-1", "--ways", "magic"], "--ways 'magic': expected some of ibp"),
    ],
)
def test_a_wrong_call_is_one_line(call: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(call) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_certiformer_passes_arguments_and_exit_code_on() -> None:
    """The commands that the project declares, as `certiformer` takes them in: options and `--help` are theirs."""
    from certiformer.cli.commands import _beside

    declared = re.findall(r'^(\w+) = "(certiformer_reproduction[\w.]*:\w+)"$', PROJECT.read_text(), re.MULTILINE)
    assert [name for name, _ in declared] == ["reproduce", "bench"]
    app = typer.Typer()
    for name, value in declared:
        passed = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(name, add_help_option=False, context_settings=passed)(
            _beside(EntryPoint(name, value, "certiformer.commands"))
        )
    said = CliRunner().invoke(app, ["reproduce", "zoo", "--list", "--only", "sst-1"])
    assert (said.exit_code, said.output.split()[0]) == (0, "sst-1")
    assert "--patience" in CliRunner().invoke(app, ["bench", "--help"]).output
    assert CliRunner().invoke(app, ["bench", "nothing"]).exit_code == 2


def test_how_far_each_way_certifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["tightness", "sst-1", "--ways", "ibp", "--norms", "2,inf", "--text", "a film", "--out", str(tmp_path / "t")]
    assert main([*call, "--device", "cpu"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[1] for row in rows[2:]] == ["l2", "linf"]
    assert '"violations": 0' in (tmp_path / "t").read_text()


def test_a_page_of_results_is_renewed_from_a_folder(tmp_path: Path) -> None:
    docs, folder = tmp_path / "docs", tmp_path / "from"
    for made in (docs, folder / "images"):
        made.mkdir(parents=True)
    head = "before\n<!-- table: words -->\nold\n<!-- end -->\n"
    (docs / "results.md").write_text(f"{head}<!-- table: main -->\nkept\n<!-- end -->\n")
    (folder / "words.md").write_text("| new |\n")
    (folder / "words.csv").write_text("a,b\n")
    (folder / "images" / "time.png").write_bytes(b"png")
    assert results.renew(docs, folder) == "results.md: renewed words"
    page = (docs / "results.md").read_text()
    assert "| new |" in page
    assert "old" not in page
    assert "kept" in page
    assert (docs / "results" / "words.csv").is_file()
    assert (docs / "images" / "time.png").is_file()
