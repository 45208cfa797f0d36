"""Certificates in other people's tests: what passes, what a failure says, the table and the JUnit file."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

import certiformer as cf
from calling import tiny_folder
from certiformer.errors import InputError
from certiformer.testing import assert_certified

if sys.version_info >= (3, 11):
    import tomllib

pytest_plugins = ["pytester"]
PLUGIN = "certiformer.testing.plugin"
WORDS = ("a", "great", "film", "dull")


@pytest.fixture(scope="module")
def certifier(tmp_path_factory: pytest.TempPathFactory) -> cf.Certifier:
    return cf.Certifier(tiny_folder(tmp_path_factory.mktemp("models") / "tiny", WORDS))


def test_a_proof_passes_and_is_returned(certifier: cf.Certifier) -> None:
    result = assert_certified(certifier, "a great film", eps=1e-4, words=2)
    assert result.status == "certified"
    assert len(result.positions) == 3


def test_what_is_not_proved_fails_and_says_how_far_it_is(certifier: cf.Certifier) -> None:
    radius = certifier.radius("a great film", positions="great").radii[0]
    with pytest.raises(AssertionError) as failed:
        assert_certified(certifier, "a great film", eps=100 * radius, positions="great")
    told = str(failed.value)
    assert "not certified for tiny" in told
    assert "refuted" in told
    assert "'great', position 2" in told
    assert f"proved up to {radius:.1g}"[:16] in told
    assert "can be proved" in told


def test_unknown_is_a_failure_too(certifier: cf.Certifier) -> None:
    radius = certifier.radius("a great film", positions="great").radii[0]
    with pytest.raises(AssertionError, match="unknown   'great'"):
        assert_certified(certifier, "a great film", eps=radius * 1.01, positions="great", attack=False)


def test_the_answer_that_is_defended_can_be_named(certifier: cf.Certifier) -> None:
    right = certifier.model.predict("a great film")
    assert isinstance(right, cf.models.predict.Prediction)
    assert_certified(certifier, "a great film", eps=0, label=right.label)
    with pytest.raises(AssertionError, match="refuted"):
        assert_certified(certifier, "a great film", eps=0, label=1 - right.label)


def test_options_of_a_certifier_are_not_given_twice(certifier: cf.Certifier) -> None:
    with pytest.raises(InputError, match="go to the Certifier"):
        assert_certified(certifier, "a great film", eps=0.1, steps=3)
    with pytest.raises(TypeError, match="did you mean eps="):
        assert_certified(certifier, "a great film", epss=0.1)


def test_the_plugin_prints_the_table_and_writes_properties(pytester: pytest.Pytester, tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "tiny", WORDS)
    pytester.makepyfile(
        f"""
        from certiformer.testing import assert_certified

        def test_small():
            assert_certified({str(folder)!r}, "a great film", eps=1e-4)

        def test_large():
            assert_certified({str(folder)!r}, "a great film", eps=50, positions="great")

        def test_of_something_else():
            pass
        """
    )
    found = pytester.runpytest("-p", PLUGIN, "--certiformer-table", "--junitxml=out.xml", "-p", "no:cacheprovider")
    found.assert_outcomes(passed=2, failed=1)
    found.stdout.fnmatch_lines(
        [
            "*not certified for tiny within 50 in l2: 'a great film'*",
            "*certified radii*",
            "*test_small*certified within*",
        ]
    )
    found.stdout.re_match_lines(
        [r"\s+great\s+certified\s+\d", r".*test_large.*refuted within 50", r"\s+great\s+refuted"]
    )
    cases = xml.parse(pytester.path / "out.xml").getroot().iter("testcase")
    kept = {case.get("name"): [json.loads(p.get("value") or "") for p in case.iter("property")] for case in cases}
    assert [note["status"] for note in kept["test_small"]] == ["certified"]
    assert all(place["certified"] > 1e-4 for place in kept["test_small"][0]["places"])
    assert kept["test_of_something_else"] == []


def test_without_the_option_nothing_is_printed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    found = pytester.runpytest("-p", PLUGIN, "-p", "no:cacheprovider")
    found.stdout.no_fnmatch_line("*certified radii*")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_pytest_finds_the_plugin_by_itself() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}


def test_a_set_that_is_given_is_not_called_a_substitution(certifier: cf.Certifier) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_certified(certifier, "a great film", within=cf.Ball(1e3, positions=[[2]]))
    assert "in the sets given" in str(failed.value)
    assert "substitution" not in str(failed.value)
