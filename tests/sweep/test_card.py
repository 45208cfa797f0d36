"""`certiformer card`: what a finished sweep measured, in a model card and as evaluation results; and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import certiformer as cf
from calling import run
from certiformer.sweep.card import BEGIN, END, RESULTS
from certiformer.sweep.result import read_result
from certiformer.sweep.store import Store
from sweeping import sentences

QUICK: dict[str, Any] = {"attack_steps": 5, "restarts": 1, "method": "backward-forward"}


@pytest.fixture(scope="module")
def swept(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swept")
    cf.sweep(str(model), sentences(9), eps=[0.001, 0.5], out=folder, **QUICK)
    return folder


@pytest.fixture
def target(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "model"))


def test_the_section_holds_what_was_measured(
    capsys: pytest.CaptureFixture[str], swept: Path, model: Path, target: Path
) -> None:
    (target / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n\nHello.\n")
    code, _, err = run(capsys, "card", swept, "--out", target)
    assert (code, err) == (0, f"written: {target / 'README.md'}\n")
    page = (target / "README.md").read_text()
    assert page.startswith("---\nlicense: mit\n---\n# Mine\n\nHello.\n")
    figures = read_result(swept).figures(0)
    right = sum(cf.load(model).predict(text).label == label for text, label in sentences(9))
    assert f"({right} of 9 sentences)" in page
    certifier = cf.Certifier(model, method="backward-forward")
    for point in figures.whole.curve:
        certified = sum(
            certifier.certify(text, eps=point.eps, label=label, attack=False).status == "certified"
            for text, label in sentences(9)
        )
        assert point.certified == certified
        assert f"| {point.eps:g} | {int(10_000 * certified / 9) / 100:.2f}% |" in page
    assert cf.load(model).hashes()["weights"][:16] in page
    assert not (target / RESULTS).exists()
    again = page.replace("Hello", "Bye").replace("Accuracy without", "An older accuracy without")
    (target / "README.md").write_text(again + "\nThe end.\n")
    run(capsys, "card", swept, "--out", target)
    page = (target / "README.md").read_text()
    assert (page.count(BEGIN), page.count(END), page.count("older")) == (1, 1, 0)
    assert "Bye" in page
    assert page.endswith("The end.\n")


def test_the_results_are_in_the_format_of_the_hub(
    capsys: pytest.CaptureFixture[str], swept: Path, target: Path
) -> None:
    names = ("--dataset-id", "me/reviews", "--task-id", "plain", "--certified-task-id", "proved", "--at", 0.001)
    code, _, _ = run(capsys, "card", swept, "--out", target, *names, "--source-url", "https://example.org/sweep")
    assert code == 0
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    plain, proved = hub.parse_eval_result_entries(yaml.safe_load((target / RESULTS).read_text()))
    whole = read_result(swept).figures(0).whole
    assert (plain.dataset_id, plain.task_id, plain.value) == ("me/reviews", "plain", round(100 * whole.accuracy, 2))
    assert (proved.task_id, proved.source_url) == ("proved", "https://example.org/sweep")
    assert proved.value <= 100 * whole.curve[0].least < proved.value + 0.01
    assert "1 word moved by up to 0.001 in l2" in proved.notes


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--task-id", "plain"], "go with --dataset-id"),
        (["--dataset-id", "me/reviews"], "name the task too"),
        (["--dataset-id", "me/reviews", "--certified-task-id", "proved"], "the sweep has the radii 0.001, 0.5"),
        (["--dataset-id", "me/reviews", "--certified-task-id", "proved", "--at", "0.2"], "the radii 0.001, 0.5"),
        (["--model", "another"], "not in this sweep"),
    ],
)
def test_what_was_not_measured_is_not_written(
    capsys: pytest.CaptureFixture[str], swept: Path, target: Path, more: list[str], told: str
) -> None:
    (target / "README.md").unlink(missing_ok=True)
    code, _, err = run(capsys, "card", swept, "--out", target, *more)
    assert code == 2
    assert told in err
    assert not (target / "README.md").exists()


def test_a_sweep_that_is_not_finished_has_no_card(
    capsys: pytest.CaptureFixture[str], swept: Path, target: Path, tmp_path: Path
) -> None:
    part = Path(shutil.copytree(swept, tmp_path / "part"))
    rows = Store(part).path
    rows.write_bytes(b"".join(rows.read_bytes().splitlines(keepends=True)[:4]))
    code, _, err = run(capsys, "card", part, "--out", target)
    assert code == 2
    assert "not finished (4 of 9 sentences)" in err


def test_a_card_is_not_put_on_another_model(
    capsys: pytest.CaptureFixture[str], swept: Path, other: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(other, tmp_path / "other"))
    code, _, err = run(capsys, "card", swept, "--out", folder)
    assert code == 2
    assert "vocabulary there are not those that the sweep measured" in err
    assert run(capsys, "card", tmp_path / "none", "--out", folder)[0] == 2
    assert run(capsys, "card", swept, "--out", tmp_path / "none")[0] == 2
