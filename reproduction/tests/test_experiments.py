"""The paper's tables: the protocol, what survives a kill, what is refused, and a tiny run of every table."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from certiformer.data import Example
from certiformer.errors import InputError
from certiformer.models import Classifier, Config, Embeddings, load
from certiformer.models.folder import write_folder
from certiformer.questions.inputs import prepare
from certiformer_reproduction import zoo
from certiformer_reproduction.command_line import main
from certiformer_reproduction.paper import figures, published, study
from certiformer_reproduction.paper.protocol import choose, pieces, spread
from certiformer_reproduction.paper.run import reproduce
from certiformer_reproduction.paper.store import FILE, Store
from certiformer_reproduction.paper.study import Settings
from certiformer_reproduction.paper.tables import TABLES
from certiformer_reproduction.paper.write import number

WORDS = ("good", "bad", "film", "dull", "fine", ".", "plot", "the")
TREES = [
    "(4 (2 the) (4 (4 good) (2 film)))",
    "(1 (2 the) (1 (1 bad) (2 plot)))",
    "(3 (3 fine) (2 (2 film) (2 .)))",
    "(0 (0 dull) (2 (2 plot) (2 .)))",
    "(4 (4 good) (3 (2 film) (3 (2 .) (3 fine))))",
    "(1 (1 bad) (1 (2 plot) (1 (2 .) (1 dull))))",
]
ROWS = "label\tsentence\n" + "".join(f"{i % 2}\t{('bad', 'good')[i % 2]} film .\n" for i in range(12))
SMALLEST = ["--sentences", "1", "--only", "sst_1", "--norms", "2", "--methods", "gradient,paper"]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for folder in ("sst", "yelp"):
        (root / folder).mkdir()
    (root / "sst/phrases.train.tsv").write_text(ROWS)
    for part in ("dev", "test"):
        (root / f"sst/trees.{part}.txt").write_text("\n".join(TREES) + "\n")
    for part in ("train", "dev", "test"):
        (root / f"yelp/sentences.{part}.tsv").write_text(ROWS)
    return root


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """Every model of the tables with random weights, eight wide."""
    root = tmp_path_factory.mktemp("models")
    for subject in {s.folder: s for table in TABLES.values() for s in table.subjects}.values():
        config = Config(
            subject.layers, len(WORDS) + 4, 8, 8, num_attention_heads=2, max_position_embeddings=12,
            layer_norm=subject.layer_norm,
        )  # fmt: skip
        generator = torch.Generator().manual_seed(len(subject.folder))
        embed, classifier = Embeddings(config), Classifier(config)
        with torch.no_grad():
            for half in (embed, classifier):
                for name, parameter in half.named_parameters():
                    noise = torch.randn(parameter.shape, generator=generator) * 0.4
                    parameter.copy_(1 + noise / 4 if "norm.weight" in name else noise)
        vocabulary = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS)
        write_folder(root / subject.folder, config=config, embed=embed, classifier=classifier, vocabulary=vocabulary)
    return root


@pytest.fixture
def call(data_dir, models, tmp_path) -> list[str]:
    return ["--data-dir", str(data_dir), "--models", str(models), "--out", str(tmp_path / "out"), "--device", "cpu"]


def settings(data_dir: Path, models: Path, out: Path, **more: object) -> Settings:
    return Settings(models=models, data_dir=data_dir, out=out, device="cpu", sentences=1, **more)  # type: ignore[arg-type]


# the protocol


def test_sentences_are_random_fixed_fitting_and_classified_correctly(models):
    model = load(models / "sst_1")
    test = [Example(i % 2, tuple(WORDS[(i * k) % len(WORDS)] for k in range(1, 3 + i % 5))) for i in range(60)]
    chosen = choose(model, test, count=8, longest=5, shortest=3, device="cpu")
    assert [s.index for s in chosen] == [
        s.index for s in choose(model, test, count=8, longest=5, shortest=3, device="cpu")
    ]
    assert [s.index for s in chosen] != sorted(s.index for s in chosen)
    assert chosen[:3] == choose(model, test, count=3, longest=5, shortest=3, device="cpu")
    for s in chosen:
        assert 3 <= len(s.words) <= 5
        assert s.label == test[s.index].label == prepare(model, s.ids).label
    with pytest.raises(InputError, match="lower --sentences"):
        choose(model, test, count=61, longest=5, shortest=3, device="cpu")


def test_pieces_hold_every_set_once(models):
    model = load(models / "sst_1")
    (sentence,) = choose(model, [Example(i, WORDS) for i in (0, 1)], count=1, longest=9, shortest=1, device="cpu")
    long = study.Sentence(0, WORDS * 4, sentence.ids[:1] + sentence.ids[1:-1] * 4 + sentence.ids[-1:], 0)
    for words in (1, 2):
        parts = pieces(long, words, size=300)
        assert len(parts) > 1
        assert max(len(part) for part in parts) * len(long.ids) <= 300
        sets = [s for part in parts for s in part]
        assert len(set(sets)) == len(sets) == math.comb(32, words)
        assert {i for s in sets for i in s} == set(range(1, 33))
        assert pieces(long, words, size=math.inf) == [tuple(sets)]


def test_minimum_and_average_over_positions_then_over_sentences():
    found = spread([[1.0, 3.0], [4.0, None, 8.0], [None]])
    assert (found.minimum, found.average) == (2.5, 4.0)
    assert (found.missing, found.positions) == (2, 6)
    assert spread([[None]]).average == math.inf


def test_the_papers_figures_are_the_papers():
    tex = Path(__file__).resolve().parents[3] / "shared" / "paper" / "robustness-verification-for-transformers.tex"
    if not tex.is_file():
        pytest.skip(f"the paper's source is not at hand: it would be {tex.name} in shared/paper beside the project")
    text = tex.read_text(encoding="utf-8").lower()
    printed = [float(x) for x in re.findall(r"\d+\.\d+(?:e-\d+)?", text)]
    for table in (published.MAIN, published.TWO_POSITIONS, published.ABLATION, published.LAYER_NORM):
        for row in table.values():
            for figures_of in (row.upper, row.ibp, row.forward, row.backward, row.paper):
                assert all(f in printed for f in figures_of or ())
    assert len(published.MAIN) == 18
    assert len(published.LAYER_NORM) == 36
    assert len(published.TWO_POSITIONS) == len(published.ABLATION) == 6
    for table in TABLES.values():
        for subject in table.subjects:
            for norm in table.norms if table.published else ():
                assert (subject.folder, f"l{norm:g}") in table.published


def test_the_zoo_has_every_model_with_what_the_paper_says():
    known = {entry.name: entry for entry in zoo.ZOO}
    for table in TABLES.values():
        for subject in table.subjects:
            config = known[subject.folder].config
            assert known[subject.folder].data == subject.data
            assert (config.num_hidden_layers, config.layer_norm) == (subject.layers, subject.layer_norm)
            assert config.hidden_size == (64 if table.name == "ablation" else 256)


# the store


def test_a_torn_line_is_passed_over_and_stores_are_joined_by_copying(tmp_path):
    store = Store(tmp_path / "a")
    with store:
        store.add([("one", {"radii": [1.0, None]}), ("two", {"words": ["é"]})])
    with (tmp_path / "a" / FILE).open("a") as file:
        file.write('{"key": "three", "rad')
    again = Store(tmp_path / "a")
    assert (set(again.kept), again.torn) == ({"one", "two"}, 1)
    with again:
        again.add([("three", {"radii": [2.0]})])
    assert set(Store(tmp_path / "a").kept) == {"one", "two", "three"}
    other = Store(tmp_path / "b")
    with other:
        other.add([("four", {})])
    (tmp_path / "a" / "cells-b.jsonl").write_bytes((tmp_path / "b" / FILE).read_bytes())
    assert set(Store(tmp_path / "a").kept) == {"one", "two", "three", "four"}


def test_a_key_depends_on_everything_that_matters(data_dir, models, tmp_path):
    bench = study.Bench(settings(data_dir, models, tmp_path, only=("sst_1",)))
    cells = study.plan(TABLES["main"], bench).cells
    assert len({cell.key for cell in cells}) == len(cells)
    tighter = study.Bench(settings(data_dir, models, tmp_path, only=("sst_1",), budget="tight"))
    changed = {c.key for c in study.plan(TABLES["main"], tighter).cells} - {c.key for c in cells}
    assert len(changed) == sum(cell.way.name == "ours" for cell in cells)
    float32 = study.Bench(settings(data_dir, models, tmp_path, only=("sst_1",), dtype="float32"))
    assert {c.key for c in study.plan(TABLES["main"], float32).cells} & {c.key for c in cells} <= {cells[0].key}


def test_a_killed_run_is_continued_and_nothing_is_done_twice(call, tmp_path, monkeypatch):
    small = ["tables", "layernorm", *call, "--sentences", "1", "--only", "sst_1", "--norms", "2"]
    code = (
        "import os, signal, sys\n"
        "from certiformer_reproduction.paper import study\n"
        "from certiformer_reproduction.command_line import main\n"
        "done, compute = [], study.compute\n"
        "def some(cells, *others):\n"
        "    if len(done) == 2:\n"
        "        open(sys.argv[1], 'a').write('{\"key\": \"to')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    done.append(cells)\n"
        "    return compute(cells, *others)\n"
        "study.compute = some\n"
        "main(sys.argv[2:])\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out" / FILE), *small],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    kept = set(Store(tmp_path / "out").kept)
    assert len(kept) == 2
    computed: list[str] = []
    compute = study.compute
    monkeypatch.setattr(
        study, "compute", lambda cells, *others: computed.extend(c.key for c in cells) or compute(cells, *others)
    )
    assert main(small) == 0
    assert len(computed) == len(set(computed)) == 3
    assert not kept & set(computed)
    computed.clear()
    assert main(small) == 0
    assert computed == []


def test_a_time_limit_stops_between_cells_and_marks_what_is_open(call, tmp_path, capsys):
    small = ["tables", "main", *call, *SMALLEST]
    assert main([*small, "--time-limit", "0"]) == 0
    assert "the time limit was reached; 3 cells are open" in capsys.readouterr().err
    written = (tmp_path / "out/main.md").read_text()
    assert "| ? |" in written
    assert "not computed yet (3 of 3 cells are open)" in written
    assert "*83.2*" in written  # the paper's figures are there all the same
    assert main(small) == 0
    assert "?" not in (tmp_path / "out/main.md").read_text()


# what is refused


def test_a_lower_bound_above_an_upper_bound_is_marked_and_fails(call, tmp_path, capsys):
    small = ["tables", "main", *call, *SMALLEST]
    assert main(small) == 0
    path = tmp_path / "out" / FILE
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        del record["sum"]  # lines without one count, as before there were any
        if record["way"] == "paper":
            record["radii"] = [1e9, *record["radii"][1:]]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    capsys.readouterr()
    assert main(small) == 3
    assert "certified radius 1e+09 exceeds attacked radius" in capsys.readouterr().err
    written = (tmp_path / "out/main.md").read_text()
    assert "(wrong)**" in written
    assert "**Wrong:** sst_1, backward-forward, paper" in written
    document = json.loads((tmp_path / "out/main.json").read_text())
    assert document["contradictions"][0]["status"] == "error"
    assert document["rows"][0]["wrong"] == ["paper"]


def test_wrong_calls_are_one_line_and_code_2(call, tmp_path, capsys):
    for more, message in (
        (["tables", "main", "--models", str(tmp_path)], "zoo --data-dir DATA --out"),
        (["tables", "main", "--methods", "theirs"], "--methods theirs: expected some of upper, gradient"),
        (["tables", "main", "--only", "sst_9"], "nothing is left of 'main'"),
        (["tables", "main", "--norms", "x"], "norm='x'"),
        (["tables", "main", "--sentences", "50"], "lower --sentences"),
        (["plots", "--out", str(tmp_path)], "run the tables first"),
    ):
        assert main([*more[:2], *call, *more[2:]] if more[0] == "tables" else more) == 2
        err = capsys.readouterr().err
        assert message in err
        assert err.startswith("error: ")
        assert len(err.splitlines()) == 1


def test_a_cell_that_fails_leaves_the_others(data_dir, models, tmp_path, monkeypatch):
    compute = study.compute

    def fails(cells, *others):
        if cells[0].way.name == "paper":
            raise InputError("too hard")
        return compute(cells, *others)

    monkeypatch.setattr(study, "compute", fails)
    chosen = settings(data_dir, models, tmp_path, only=("sst_1",), norms=(2.0,), methods=("paper", "ibp"))
    done = reproduce("main", chosen)
    assert done.code == 2
    assert done.outcome.failures[0].endswith("too hard")
    values = done.results[0].rows[0].values
    assert values["paper avg"] is None
    assert isinstance(values["ibp avg"], float)


# a tiny run of everything


def test_every_table_and_plot_through_the_command_line(call, tmp_path, capsys):
    some = ["--only", "sst_1,yelp_1,sst_1_small,sst_1_standard", "--norms", "2", "--sentences", "1"]
    assert main(["tables", "all", *call, *some, "--max-length", "3"]) == 0
    err = capsys.readouterr().err
    assert "left" in err
    assert "\x1b" not in err
    for name in TABLES:
        document = json.loads((tmp_path / f"out/{name}.json").read_text())
        assert document["unfinished"] == 0
        assert document["contradictions"] == []
        assert {row["source"] for row in document["rows"]} == {"here", "published"}
        assert all(v is not None for row in document["rows"] if name == "words" for v in row["values"].values())
        written = (tmp_path / f"out/{name}.md").read_text()
        assert f"certiformer reproduce tables {name} --data-dir DATA --models MODELS" in written
        assert "?" not in written
        assert str(tmp_path) not in written
        assert ("not the reviews that the paper used" in written) == (name != "ablation")
        with (tmp_path / f"out/{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(document["rows"])
        if name != "words":
            assert len(rows) == {"main": 4, "two-positions": 4, "ablation": 2, "layernorm": 6}[name]
            for row in rows[::2]:
                assert float(row["ours avg"]) > 0
    two = json.loads((tmp_path / "out/two-positions.json").read_text())
    assert all(len(where) == 2 for record in two["records"] for where in record["positions"])
    ablation = (tmp_path / "out/ablation.md").read_text()
    assert "times as fast as *fully backward* (published: 7." in ablation
    assert main(["plots", "--out", str(tmp_path / "out")]) == 0
    for name in ("layers", "words", "time"):
        assert (tmp_path / f"out/images/{name}.png").stat().st_size > 5000


def test_importance_picks_the_smallest_radius_for_its_length():
    record = {"radii": [1.0, 3.0, None], "lengths": [1.0, 6.0, 1.0]}
    assert figures._extremes(record) == (1, 2)
    assert figures._extremes({"slopes": [0.1, 0.7, 0.3]}) == (1, 0)


# rows that are not finished


def test_a_row_with_open_cells_is_over_the_sentences_that_all_methods_have(call, data_dir, models, tmp_path):
    small = ["tables", "main", *call, "--sentences", "3", "--only", "sst_1", "--norms", "2"]
    assert main(small) == 0
    kept = Store(tmp_path / "out")
    bench = study.Bench(
        Settings(
            models=models, data_dir=data_dir, out=tmp_path, sentences=3, device="cpu", norms=(2.0,), only=("sst_1",)
        )
    )
    (group,) = study.plan(TABLES["main"], bench).groups

    def written(lost: dict[str, tuple[int, ...]]) -> tuple[dict[str, str], str]:
        """The first row of the CSV and the page, without some methods' sentences."""
        keys = {c.key for way, some in lost.items() for i in some for c in group.cells[way][i]}
        lines = [json.dumps(r) + "\n" for key, r in kept.kept.items() if key not in keys]
        (tmp_path / "out" / FILE).write_text("".join(lines))
        assert main([*small, "--time-limit", "0"]) == 0
        with (tmp_path / "out/main.csv").open() as file:
            return next(csv.DictReader(file)), (tmp_path / "out/main.md").read_text()

    def average(way: str, *sentences: int) -> float:
        return spread([r for i in sentences for r in [study.joined(group.cells[way][i], kept)["radii"]]]).average

    row, page = written({"ours": (1,), "paper": (1, 2)})  # 0 is finished by all
    assert (row["sentences"], row["sentences chosen"]) == ("1", "3")
    assert "| 1 of 3 |" in page
    assert "a row is over those that all have finished" in page
    for way in ("gradient", "ibp", "paper", "ours"):
        assert float(row[f"{way} avg"]) == pytest.approx(average(way, 0))
    ratio = average("ours", 0) / average("paper", 0)
    assert float(row["ours / paper's method avg"]) == pytest.approx(ratio)

    row, page = written({"ours": (0, 1, 2), "paper": (1,)})  # a method without any does not blank the others
    assert row["ours avg"] == row["ours / paper's method avg"] == ""
    assert "? / ?" in page
    assert row["sentences"] == "2"
    assert float(row["paper avg"]) == pytest.approx(average("paper", 0, 2))

    row, _ = written({"ours": (0, 1), "paper": (2,)})  # nothing in common: the one that is furthest stays
    assert row["ours avg"] == ""
    assert float(row["paper avg"]) == pytest.approx(average("paper", 0, 1))

    row, page = written({})
    assert row["sentences"] == row["sentences chosen"] == "3"
    assert " of 3 |" not in page


def test_important_words_are_compared_on_the_same_sentences(call, tmp_path):
    small = ["tables", "words", *call, "--sentences", "3", "--only", "sst_1"]
    assert main(small) == 0
    path = tmp_path / "out" / FILE
    lines = path.read_text().splitlines(keepends=True)
    dropped = next(i for i, line in enumerate(lines) if json.loads(line)["way"] == "paper")
    path.write_text("".join(lines[:dropped] + lines[dropped + 1 :]))
    assert main([*small, "--time-limit", "0"]) == 0
    with (tmp_path / "out/words.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "here"]
    assert {(row["sst sentences"], row["sst sentences chosen"]) for row in rows} == {("2", "3")}
    assert "SST: 2 of 3 sentences" in (tmp_path / "out/words.md").read_text()


@pytest.mark.parametrize(
    ("value", "column", "source", "written"),
    [
        (0.12399, "ours avg", "here", "0.123"),
        (0.12301, "gradient avg", "here", "0.124"),
        (0.0019999, "paper min", "here", "1.9e-03"),
        (0.0019001, "upper min", "here", "2.0e-03"),
        (0.013, "paper avg", "published", "0.013"),
        (0.0, "ours min", "here", "0.000"),
        (0.5, "ours min", "here", "0.500"),
    ],
)
def test_what_is_proved_is_rounded_down_and_what_is_attacked_up(value, column, source, written):
    assert number(value, column, source) == written
