"""The command line: radius, attack, importance and report, driven as a person would."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from calling import run, tiny_folder
from certiformer import report as reporting
from certiformer.cli.commands import COMMANDS
from certiformer.report import from_json

WORDS = ("a", "good", "bad", "film", "[", "]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny", WORDS)


def test_radius_prints_a_table_and_what_it_means(folder, capsys):
    code, out, err = run(capsys, "radius", "A good [film]", "--model", folder, "--method", "ibp", "--device", "cpu")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert "certified" in out
    assert "attacked" in out
    told = " ".join(out.split())
    assert "Proved: no change of the word '" in told
    assert "an attack needs" in told
    assert "[" in [line.split()[0] for line in out.splitlines() if line.split()]  # markup is not interpreted


def test_json_html_and_quiet_agree(folder, capsys, tmp_path):
    call = ["--model", folder, "--method", "ibp", "--norm", "2", "--norm", "inf", "--device", "cpu"]
    code, out, _ = run(capsys, "radius", "a good film", *call, "--json", "--out", tmp_path / "r.html")
    assert code == 0
    document = from_json(out)
    assert [r.norm for r in document.results[0].runs] == ["l2", "linf"]
    assert all(p.certified <= (p.attacked or 9e9) for r in document.results[0].runs for p in r.places)
    assert document.settings["dtype"] == "float64"
    code, out, _ = run(capsys, "radius", "a good film", *call, "--quiet")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [float(row[3]) for row in rows] == [p.certified for r in document.results[0].runs for p in r.places]
    (tmp_path / "r.json").write_text(reporting.to_json(document))
    code, _, _ = run(capsys, "report", "--from", tmp_path / "r.json", "--out", tmp_path / "again.html")
    assert code == 0
    assert (tmp_path / "again.html").read_text() == (tmp_path / "r.html").read_text()


def test_pairs_and_chosen_positions(folder, capsys):
    call = ["--model", folder, "--json", "--device", "cpu"]
    _, out, _ = run(capsys, "attack", "a good film good", *call, "--words", "2")
    assert len(from_json(out).results[0].runs[0].places) == 6
    _, out, _ = run(capsys, "attack", "a good film good", *call, "--positions", "good,1+film")
    assert [p.positions for p in from_json(out).results[0].runs[0].places] == [(2,), (4,), (1, 3)]


def test_enumeration_names_the_word(folder, capsys):
    code, out, _ = run(capsys, "attack", "a good film", "--method", "enumeration", "--model", folder, "--json")
    places = from_json(out).results[0].runs[0].places
    assert code == 0
    assert all((p.attacked is None) == (p.replacement is None) for p in places)


def test_certify_proves_refutes_and_says_so_with_its_exit_code(folder, capsys, tmp_path):
    call = ["certify", "a good film", "--model", folder, "--device", "cpu"]
    _, out, _ = run(capsys, "radius", "a good film", "--model", folder, "--device", "cpu", "--json")
    places = from_json(out).results[0].runs[0].places
    proved = min(p.certified for p in places)
    code, out, err = run(capsys, *call, "--eps", 0.9 * proved)
    assert (code, err) == (0, "")
    assert out.count("proved: no change of the word") == 3
    weak = min((p for p in places if p.attacked is not None), key=lambda p: p.attacked)
    code, out, _ = run(capsys, *call, "--eps", 1.1 * weak.attacked, "--positions", weak.positions[0], "--json")
    (verdict,) = from_json(out).results[0].verdicts
    assert code == 1
    assert verdict.status == "refuted"
    assert verdict.radius <= 1.1 * weak.attacked
    assert len(verdict.counterexample[0]) == 8
    code, out, _ = run(capsys, *call, "--eps", 1.1 * weak.attacked, "--quiet")
    assert (code, out) == (1, "refuted\n")
    code, out, _ = run(capsys, *call, "--eps", 100, "--no-attack", "--method", "ibp", "--quiet")
    assert (code, out) == (1, "unknown\n")
    table = tmp_path / "synonyms.json"
    table.write_text('{"good": ["bad"], "film": ["a", "good"]}')
    code, out, _ = run(capsys, *call, "--substitutions", table, "--json")
    (verdict,) = from_json(out).results[0].verdicts
    assert verdict.positions == (2, 3)
    assert code == (0 if verdict.status == "certified" else 1)
    for wrong, message in (
        ([], "give one of the two"),
        (["--eps", "-1"], "finite radius of 0 or more"),
        (["--eps", "nan"], "finite radius of 0 or more"),
        (["--substitutions", tmp_path / "no.json"], "cannot be read"),
        (["--eps", "1", "--substitutions", table], "give one of the two"),
        (["--substitutions", table, "--norm", "2"], "not measured in a norm"),
        (["--substitutions", table, "--words", "2"], "say themselves which words"),
    ):
        code, _, err = run(capsys, *call, *wrong)
        assert code == 2
        assert message in err
        assert len(err.splitlines()) == 1


def test_importance_ranks_every_word(folder, capsys):
    code, out, _ = run(capsys, "importance", "a good film", "--model", folder, "--method", "ibp", "--json")
    words = from_json(out).results[0].importance
    assert code == 0
    assert [w.rank for w in words] == [1, 2, 3]
    assert sorted(w.normalized for w in words) == [w.normalized for w in words]
    assert {w.gradient_rank for w in words} == {w.attacked_rank for w in words} == {1, 2, 3}
    code, out, _ = run(capsys, "importance", "a good film", "--model", folder, "--method", "ibp")
    assert code == 0
    assert "matters most" in out


def test_many_sentences_from_files_and_stdin(folder, capsys, tmp_path, monkeypatch):
    call = ["attack", "--model", folder, "--json", "--device", "cpu"]
    (tmp_path / "lines.txt").write_text("a good film\n\nbad " * 1 + "film\n")
    _, out, _ = run(capsys, *call, "--file", tmp_path / "lines.txt")
    assert [s.text for s in from_json(out).results] == ["a good film", "bad film"]
    (tmp_path / "table.tsv").write_text("label\tsentence\n1\ta good film\n0\tbad\n")
    _, out, _ = run(capsys, *call, "--file", tmp_path / "table.tsv")
    assert [s.text for s in from_json(out).results] == ["a good film", "bad"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a good film\n" + b"film " * 20 + b"\nbad\n")))
    code, out, err = run(capsys, *call, "--file", "-")
    document = from_json(out)
    assert code == 2
    assert [s.text for s in document.results] == ["a good film", "bad"]
    assert [f.line for f in document.failures] == [2]
    assert err.startswith("error: line 2: ")
    assert len(err.splitlines()) == 1


def test_ctrl_c_keeps_what_is_finished(folder, capsys, monkeypatch, tmp_path):
    real, calls = reporting.measure_many, []

    def measure_many(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(reporting, "measure_many", measure_many)
    code, out, err = run(
        capsys, "attack", "a good film", "bad film", "--model", folder, "--json", "--out", tmp_path / "r.json"
    )
    document = from_json(out)
    assert code == 130
    assert not document.complete
    assert [s.text for s in document.results] == ["a good film"]
    assert "1 finished sentence kept" in err
    assert from_json((tmp_path / "r.json").read_text()) == document


def test_a_contradiction_is_an_error_of_its_own(folder, capsys, monkeypatch):
    from certiformer.report import measure as _  # noqa: F401  the function hides the module of its name

    module = sys.modules["certiformer.report.measuring"]
    real = module.check_consistency
    monkeypatch.setattr(module, "check_consistency", lambda **o: real(**{**o, "attacked": [0.0] * len(o["attacked"])}))
    code, out, err = run(capsys, "radius", "a good film", "--model", folder, "--method", "ibp", "--json")
    assert code == 3
    assert "please report" in err
    record = from_json(out).results[0].runs[0].error
    assert record["status"] == "error"
    assert record["inputs"] == [2, 4, 5, 7, 3]
    assert record["model"] == "tiny"


def test_wrong_calls_are_one_line_and_code_2(folder, capsys, tmp_path):
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "other.json").write_text('{"a": 1}')
    with_model = ["--model", folder]
    for call, message in (
        (["radius", "", *with_model], "holds no word"),
        (["radius", *with_model], "no sentence was given"),
        (["attack", "a " * 50, *with_model], "at most 10"),
        (["radius", "a", "--model", "sst-9"], "no model 'sst-9'"),
        (["radius", "a", *with_model, "--norm", "zero"], "norm='zero'"),
        (["radius", "a", *with_model, "--words", "2"], "words=2"),
        (["attack", "a good film", *with_model, "--positions", "great"], "no word 'great'"),
        (["attack", "a good film", *with_model, "--positions", "0"], "special token [CLS]"),
        (["attack", "a good good", *with_model, "--positions", "a+good"], "give the number"),
        (["radius", "a", *with_model, "--tolerance", "0"], "tolerance=0"),
        (["radius", "a", *with_model, "--file", tmp_path / "no.txt"], "cannot be read"),
        (["radius", "a", *with_model, "--file", tmp_path], "cannot be read"),
        (["radius", *with_model, "--file", tmp_path / "bytes.txt"], "expected UTF-8"),
        (["radius", *with_model, "--file", tmp_path / "empty.txt"], "holds none"),
        (["radius", "a", *with_model, "--out", tmp_path / "r.pdf"], ".json or .html"),
        (["radius", "a", *with_model, "--out", tmp_path / "no" / "r.html"], "no folder"),
        (["radius", "a", *with_model, "--device", "tpu9"], "device"),
        (["radius", "a good", *with_model, "--words", "2", "--positions", "a,good"], "give one of the two"),
        (["radius", "a", *with_model, "--method", "ibp", "--splits", "4"], "method='ibp'"),
        (["radius", "a", *with_model, "--no-attack", "--seed", "3"], "--no-attack and --seed"),
        (["radius", "a", *with_model, "--format", "csv"], "--format csv: this is said of --file"),
        (["radius", "a", *with_model, "--threads", "0"], "threads=0"),
        (["radius", "a", *with_model, "--method", "magic"], "magic"),
        (["certify", "a", *with_model, "--eps", "1", "--tolerance", "0.1"], "--tolerance"),
        (["report", "--norm", "2", "--from", tmp_path / "other.json", "--out", tmp_path / "r.html"], "--norm"),
        (["report", "a", "--from", tmp_path / "other.json"], "use one"),
        (["report", "--from", tmp_path / "other.json", "--out", tmp_path / "r.html"], "no field 'schema'"),
        (["report", "--from", tmp_path / "no.json", "--out", tmp_path / "r.html"], "cannot be read"),
        (["report", "a", *with_model, "--out", tmp_path / "r.json"], "ends in .html"),
    ):
        code, _, err = run(capsys, *call)
        assert code == 2, call
        assert message in err
        assert err.startswith("error: ")
        assert len(err.splitlines()) == 1


def test_unknown_words_are_named(folder, capsys):
    code, out, _ = run(capsys, "attack", "never seen", "--model", folder)
    assert code == 0
    assert "knows none of these 2 words" in " ".join(out.split())


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_help_has_an_example(capsys, command):
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"Example: certiformer {command}" in " ".join(out.split())


def test_positions_mean_the_same_everywhere(folder, capsys):
    call = ["--model", folder, "--json", "--no-attack", "--method", "ibp"]
    for written, sets in (("1,2", [(1,), (2,)]), ("1+2", [(1, 2)]), ("a,good+film", [(1,), (2, 3)]), ("2", [(2,)])):
        _, out, _ = run(capsys, "radius", "a good film", *call, "--positions", written)
        assert [p.positions for p in from_json(out).results[0].runs[0].places] == sets


def test_flags_are_the_fields_of_the_options(capsys):
    import re
    from dataclasses import fields

    from certiformer.options import CertifyCall, RadiusCall

    for command, kind, without in (("radius", RadiusCall, set()), ("certify", CertifyCall, {"tolerance"})):
        _, out, _ = run(capsys, command, "--help")
        offered = set(re.findall(r"--([a-z][a-z-]+)", out))
        expected = {f.name.replace("_", "-") for f in fields(kind) if f.metadata["flag"]} - without
        assert expected <= offered
        assert not without & offered


def test_settings_say_all_that_matters(folder, capsys):
    call = ["radius", "a good film", "--model", folder, "--json", "--method", "ibp", "--device", "cpu", "--seed", "3"]
    settings = from_json(run(capsys, *call)[1]).settings
    assert settings["norms"] == ["l2"]
    assert (settings["method"], settings["seed"], settings["device"]) == ("ibp", 3, "cpu")
    assert {"relaxation", "budget", "steps", "splits", "tolerance", "dtype", "words", "positions", "label"} <= set(
        settings
    )
    assert "threads" not in settings  # nothing that is proved depends on them
