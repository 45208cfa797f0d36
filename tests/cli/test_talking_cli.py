"""What the command line says of itself and of its work: the version, the log, and what a shell completes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from calling import run, tiny_folder
from certiformer import __version__
from certiformer.cli import main

WORDS = ("a", "great", "film")
MAIN = "import sys; sys.argv[0] = 'certiformer'; from certiformer.cli import main; main()"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny", WORDS)


def test_the_version_comes_with_what_a_report_of_a_fault_needs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.startswith(f"certiformer {__version__} (torch {version('torch')}, Python {sys.version_info.major}.")


def test_verbose_says_what_is_done_on_stderr(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    asked = ("radius", "a great film", "--model", folder, "--no-attack", "--quiet")
    _, plain, silent = run(capsys, *asked)
    code, out, err = run(capsys, *asked, "--verbose")
    assert code == 0
    assert out == plain
    assert silent == ""
    lines = err.splitlines()
    assert [line.split()[0] for line in lines] == ["opened", "captured", "searched", "found"]
    assert "nodes" in lines[1]
    assert "evaluations" in lines[2]
    assert logging.getLogger("certiformer").level == logging.NOTSET  # as it was


def test_the_library_is_quiet_unless_a_program_listens(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    import certiformer as cf

    assert any(isinstance(h, logging.NullHandler) for h in logging.getLogger("certiformer").handlers)
    with caplog.at_level(logging.INFO, logger="certiformer"):
        cf.certify(folder, "a great film", eps=0.1)
    assert [r.name for r in caplog.records] == ["certiformer.api", "certiformer.core.captured", "certiformer.api"]
    assert "CertifyResult" in caplog.records[-1].getMessage()


def test_a_shell_completes_commands_options_and_values() -> None:
    def completed(*words: str) -> list[str]:
        asked = {"COMP_WORDS": " ".join(("certiformer", *words)), "COMP_CWORD": str(len(words))}
        env = {**os.environ, **asked, "_CERTIFORMER_COMPLETE": "complete_bash"}
        done = subprocess.run([sys.executable, "-c", MAIN], env=env, capture_output=True, text=True, check=False)
        return done.stdout.split()

    assert completed("rad") == ["radius"]
    assert completed("radius", "--arith") == ["--arithmetic"]
    assert completed("radius", "--arithmetic", "") == ["real", "float32"]


def test_the_script_of_completion_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: ("bash", "/bin/bash"))  # whatever runs the tests
    with pytest.raises(SystemExit):
        main(["--show-completion"])
    assert "_CERTIFORMER_COMPLETE=complete_bash" in capsys.readouterr().out
