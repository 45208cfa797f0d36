"""Help without torch, and failures of the machine: one line and an exit code of their own, never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from certiformer import cli
from certiformer.cli.commands import COMMANDS
from certiformer.errors import InputError
from spread import spread

MACHINE = cli.MACHINE
LOADED = """
import sys
from certiformer.cli import main
try:
    main(sys.argv[1:])
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""


def command(*arguments: object, code: str = LOADED, **options) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **options.pop("env", {})}
    given = [sys.executable, "-c", code, *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, **options}
    return subprocess.run(given, stderr=subprocess.PIPE, text=True, env=environment, check=False, **options)


CALLS: list[tuple[list[str], int]] = [
    (["--help"], 0),
    (["--version"], 0),
    ([], 0),
    *(([name, "--help"], 0) for name in COMMANDS),
    (["nothing"], 2),
    (["radius", "--nothing"], 2),
    (["radius"], 2),
    (["radius", "a film", "--norm", "zero"], 2),
    (["radius", "a film", "--out", "r.pdf"], 2),
    (["attack", "--file", "no/such/file.txt"], 2),
    (["certify", "a film"], 2),
    (["radius", "a film", "--model", "no-such-model"], 2),
    (["certify", "a film", "--eps", "0.1", "--model", "no-such-model"], 2),
    (["eval", "no-such-model"], 2),
    (["certify", "a film", "--eps", "much"], 2),
]
ONE_BY_ONE = """
import contextlib, io, json, sys
from certiformer.cli import main
answers = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stopped:
            code = stopped.code
    answers.append([code or 0, out.getvalue(), err.getvalue(), "torch" in sys.modules])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers():
    """What the calls come to, one after the other in one process that did not begin with torch."""
    done = command(code=ONE_BY_ONE, input=json.dumps([arguments for arguments, _ in CALLS]))
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda k: " ".join(CALLS[k][0]) or "nothing")
def test_help_and_wrong_calls_do_not_wait_for_torch(answers, number):
    _, expected = CALLS[number]
    code, out, err, loaded = answers[number]
    assert code == expected
    assert not loaded
    assert bool(out) == (expected == 0)
    assert len(err.splitlines()) == (0 if expected == 0 else 1)
    assert expected == 0 or err.startswith("error: ")


def test_the_public_names_are_all_there_and_typed_once():
    code = (
        "import certiformer as cf, certiformer.attack.gradient\nprint(callable(cf.attack), dir(cf) == sorted(dir(cf)))"
    )
    assert command(code=code).stdout.split() == ["True", "True"]
    import certiformer as cf

    assert all(getattr(cf, name) is not None for name in cf.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cf.nothing  # noqa: B018


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], pytest.param(["models"], marks=pytest.mark.slow)])
def test_a_full_disk(arguments):
    with open("/dev/full", "w") as full:
        done = command(
            *arguments, code=LOADED.replace('print("torch" in sys.modules, file=sys.stderr)', "pass"), stdout=full
        )
    assert (done.returncode, done.stderr) == (MACHINE, "error: No space left on device\n")


def test_a_closed_pipe():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = command("models", code="from certiformer.cli import main; import sys; main(sys.argv[1:])", stdout=closed)
    assert (done.returncode, len(done.stderr.splitlines())) == (MACHINE, 1)
    assert "closed" in done.stderr


@pytest.mark.parametrize(
    ("encoding", "arguments"),
    spread(["ascii", "cp1252"], [["models"], ["--help"], ["radius", "--file", "né…–.txt"]]),
)
def test_an_output_that_lacks_letters(encoding, arguments):
    done = command(*arguments, env={"PYTHONIOENCODING": encoding})
    assert done.returncode == (2 if "--file" in arguments else 0)
    assert "Traceback" not in done.stderr


STOPPED = """
import sys
from certiformer.cli import main
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
main(["radius", "a film"])
"""


@pytest.mark.parametrize("importing", ["typer", "certiformer.cli.commands", "torch"])
def test_ctrl_c_while_importing(importing):
    done = command(importing, code=STOPPED)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


@pytest.mark.parametrize(
    ("raised", "told", "code"),
    [
        (MemoryError(), "out of memory", MACHINE),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 1 bytes"), "out of memory", MACHINE),
        (OSError(28, "No space left on device", "a.json"), "a.json: No space left", MACHINE),
        (BrokenPipeError(), "closed", MACHINE),
        (KeyError("x"), "unexpected KeyError: 'x'", MACHINE),
        (RecursionError("deep"), "unexpected RecursionError", MACHINE),
        (InputError("wrong\nhere \x1b[31m"), "error: wrong here ␛[31m", 2),
        (KeyboardInterrupt(), "stopped", cli.INTERRUPTED),
    ],
)
def test_every_failure_is_a_line(monkeypatch, capsys, raised, told, code):
    def fail(arguments):
        raise raised

    monkeypatch.setattr(cli, "_run", fail)
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    out, err = capsys.readouterr()
    assert stopped.value.code == code
    assert told in err
    assert (out, len(err.splitlines())) == ("", 1)


def test_a_traceback_can_be_asked_for(monkeypatch):
    def fail(arguments):
        raise KeyError("x")

    monkeypatch.setattr(cli, "_run", fail)
    monkeypatch.setenv(cli.TRACEBACK, "1")
    with pytest.raises(KeyError):
        cli.main([])


def test_a_signal_is_an_interruption():
    code = (
        "import os, signal\n"
        "from certiformer import cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell in the background ignores it
        "cli._run = lambda given: os.kill(os.getpid(), signal.SIGINT)\n"
        "cli.main([])"
    )
    done = command(code=code)
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "stopped\n")
