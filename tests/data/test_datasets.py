"""Datasets: the public layouts, the sizes of the paper, and one clear line for every broken file."""

from __future__ import annotations

import gzip
import sys
import types
from pathlib import Path

import pytest

from certiformer.data import Tables, load_data, read_table, read_trees
from certiformer.data.readers import phrases, sentences
from certiformer.errors import InputError
from certiformer.models.tokenizer import split_words
from conftest import DATA, needs_data

TREES = """\
(3 (2 It) (4 (2 's) (4 (3 lovely) (2 -LRB-))))
(2 (2 Neutral) (2 here))
(1 (1 bad) (2 and\\/or))
"""


@pytest.fixture(autouse=True)
def no_data_from_outside(monkeypatch):
    monkeypatch.delenv("CERTIFORMER_DATA", raising=False)


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


@needs_data
def test_sst_has_the_sizes_of_the_paper_and_labels_for_its_words():
    data = load_data("sst", data_dir=DATA)
    assert (len(data.train), len(data.dev), len(data.test)) == (67_349, 872, 1_821)
    assert data.dev[0].words[:6] == ("it", "'s", "a", "lovely", "film", "with")
    assert data.dev[0].word_labels[:6] == (2, 2, 2, 3, 2, 2)
    assert data.dev[0].label == 1
    for example in (*data.dev, *data.test):
        assert example.label in (0, 1)
        assert len(example.word_labels) == len(example.words)


@needs_data
@pytest.mark.slow
def test_trees_and_phrases_write_words_alike():
    """The phrases come from the training trees: but for a few British spellings every word is in both."""
    seen = {word for example in load_data("sst", data_dir=DATA).train for word in example.words}
    found = [word for e in sentences(read_trees(DATA / "sst" / "trees.train.txt.gz")) for word in e.words]
    assert sum(word in seen for word in found) / len(found) > 0.9995


@needs_data
@pytest.mark.slow
def test_yelp_sizes():
    data = load_data("yelp", data_dir=DATA)
    assert (len(data.train), len(data.dev), len(data.test)) == (166_557, 5_000, 10_000)
    assert {example.label for example in data.test} == {0, 1}


@needs_data
@pytest.mark.parametrize("part", ["dev", "test"])
def test_the_treebank_comes_through_the_tokeniser_unchanged(part):
    texts = [tree.words for tree in read_trees(DATA / "sst" / f"trees.{part}.txt.gz")]
    same = sum(tuple(w.text for w in split_words(" ".join(words))) == words for words in texts)
    assert same / len(texts) > 0.995


@needs_data
def test_treebank_sentences_written_as_people_write_split_back():
    """Join the tokens the way English is typed; the tokeniser has to find the same ones again."""
    texts = [tree.words for tree in read_trees(DATA / "sst" / "trees.dev.txt.gz")]
    same = 0
    for words in texts:
        typed = " ".join(words)
        for mark in (".", ",", ";", ":", "?", "!", ")", "''", "n't", "'s", "'re", "'ve", "'ll", "'d", "'m", "%"):
            typed = typed.replace(f" {mark} ", f"{mark} ")
            if typed.endswith(f" {mark}"):
                typed = typed[: -len(mark) - 1] + mark
        for mark in ("(", "``", "$"):
            typed = typed.replace(f"{mark} ", mark)
        typed = typed.replace("``", '"').replace("''", '"')
        same += tuple(word.text for word in split_words(typed)) == words
    assert same / len(texts) > 0.95


def test_trees_give_sentences_words_and_phrases(tmp_path):
    trees = read_trees(put(tmp_path / "dev.txt", TREES))
    first, last = sentences(trees)
    assert (first.label, first.words, first.word_labels) == (1, ("it", "'s", "lovely", "("), (2, 2, 3, 2))
    assert (last.label, last.words) == (0, ("bad", "and/or"))
    assert {(e.words, e.label) for e in phrases(trees)} == {
        (("lovely", "("), 1),
        (("'s", "lovely", "("), 1),
        (("it", "'s", "lovely", "("), 1),
        (("lovely",), 1),
        (("bad", "and/or"), 0),
        (("bad",), 0),
    }


def test_sst_from_the_stanford_layout_alone(tmp_path):
    for part in ("train", "dev", "test"):
        put(tmp_path / "trees" / f"{part}.txt", TREES)
    data = load_data("sst", data_dir=tmp_path)
    assert (len(data.train), len(data.dev), len(data.test)) == (6, 2, 2)


def test_sst_from_the_glue_layout_by_the_variable(tmp_path, monkeypatch):
    put(tmp_path / "SST-2" / "train.tsv", "sentence\tlabel\nso good \t1\nhide new secretions \t0\n")
    put(tmp_path / "SST-2" / "dev.tsv", "sentence\tlabel\nit 's fine . \t1\n")
    put(tmp_path / "SST-2" / "test.tsv", "index\tsentence\n0\tno label here\n")
    monkeypatch.setenv("CERTIFORMER_DATA", str(tmp_path))
    data = load_data("sst")
    assert [(e.label, e.words) for e in data.train] == [(1, ("so", "good")), (0, ("hide", "new", "secretions"))]
    assert data.dev[0].words == ("it", "'s", "fine", ".")
    assert data.test == ()


def test_yelp_polarity_counts_from_one_and_a_dev_part_is_held_out(tmp_path):
    rows = "".join(f'"{1 + i % 2}","Text {i}, isn\'t ""it""\nso?"\n' for i in range(20))
    put(tmp_path / "yelp" / "train.csv", rows)
    put(tmp_path / "yelp" / "test.csv", '"2","Good."\n')
    data = load_data("yelp", data_dir=tmp_path)
    assert (len(data.train), len(data.dev), len(data.test)) == (18, 2, 1)
    assert data.train[0].label == 0
    assert data.test[0].label == 1
    assert data.train[0].words == ("text", "0", ",", "is", "n't", "``", "it", "''", "so", "?")
    assert not set(data.train) & set(data.dev)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "label\tsentence\n0\tIt's bad\n1\tgood\n"),
        ("a.tsv", "0\tIt's bad\n1\tgood\n"),
        ("a.tsv", "It's bad\t0\ngood\t1\n"),
        ("a.tsv", "neg\tIt's bad\npos\tgood\n"),
        ("a.tsv.gz", "sentence\tid\tlabel\nIt's bad\t7\t0\ngood\t8\t1\n"),
        ("a.csv", "text,label\nIt's bad,0\ngood,1\n"),
        ("a.csv.gz", '0,"It\'s bad"\r\n1,"good"\r\n'),
        ("a.jsonl", '{"text": "It\'s bad", "label": 0}\n{"text": "good", "label": "positive"}\n'),
        ("a.json", '[{"text": "It\'s bad", "label": 0}, {"text": "good", "label": 1}]'),
        ("a.jsonl.gz", '{"sentence": "It\'s bad", "label": "0"}\n{"sentence": "good", "label": "1"}\n'),
        ("a.txt", "0\tIt's bad\n1\tgood\n"),
    ],
)
def test_tables_of_many_shapes(tmp_path, name, text):
    data = load_data(put(tmp_path / name, text))
    assert [(e.label, e.words) for e in data.test] == [(0, ("it", "'s", "bad")), (1, ("good",))]


def test_labels_are_what_the_file_says(tmp_path):
    ones = put(tmp_path / "ones.csv", "label,text\n1,good\n1,fine\n")
    assert [e.label for e in load_data(ones).test] == [1, 1]
    from_one = put(tmp_path / "from_one.csv", '1,"It\'s bad"\n2,"good"\n')
    with pytest.raises(InputError, match=r"labels are 1, 2, without 0: say --labels-from 1"):
        load_data(from_one)
    assert [e.label for e in load_data(from_one, tables=Tables(labels_from=1)).test] == [0, 1]
    assert [e.label for e in load_data(from_one, tables=Tables(labels_from=0)).test] == [1, 2]
    with pytest.raises(InputError, match=r"line 2: the label is 0, but --labels-from 1"):
        load_data(put(tmp_path / "zero.csv", "label,text\n0,bad\n1,good\n"), tables=Tables(labels_from=1))


def test_labels_by_the_names_of_a_model(tmp_path):
    named = put(tmp_path / "named.csv", "label,text\nPositive,good\nneg,bad\n2,so\n0,fine\n")
    data = load_data(named, tables=Tables(names=("positive", "negative", "neutral")))
    assert [e.label for e in data.test] == [0, 1, 2, 0]
    assert data.labels == ("positive", "negative", "neutral")
    only = put(tmp_path / "only.csv", "label,text\nneutral,so\nnegative,bad\n")  # 2 and 1, but not as numbers
    assert [e.label for e in load_data(only, tables=Tables(names=data.labels)).test] == [2, 1]
    with pytest.raises(
        InputError, match=r"line 3: expected a label from 0 to 1, or one of \['yes', 'no'\], found 'maybe'"
    ):
        load_data(put(tmp_path / "m.csv", "label,text\nyes,a\nmaybe,b\n"), tables=Tables(names=("yes", "no")))
    with pytest.raises(InputError, match="label 2 is not one of the 2 labels"):
        load_data(put(tmp_path / "t.csv", "label,text\n0,a\n2,b\n"), tables=Tables(names=("yes", "no")))


def test_columns_by_name_and_by_number(tmp_path):
    table = put(tmp_path / "a.csv", 'id,headline,stars\n7,"Good, ""really""\nso",1\n8,bad,0\n')
    data = load_data(table, tables=Tables(text_column="Headline", label_column="stars"))
    assert [(e.label, e.text) for e in data.test] == [(1, 'Good, "really"\nso'), (0, "bad")]
    bare = put(tmp_path / "b.csv", "7,good,1\n8,bad,0\n")
    data = load_data(bare, tables=Tables(text_column="2", label_column="3"))
    assert [(e.label, e.text) for e in data.test] == [(1, "good"), (0, "bad")]
    for columns, message in (
        (("nothing", None), "--text-column nothing: there is no such column; the columns are 'id | headline"),
        (("9", None), "--text-column 9: expected a column from 1 to 3"),
        (("headline", None), "expected a header with 'label'"),
    ):
        with pytest.raises(InputError, match=message.replace("|", r"\|")):
            load_data(table, tables=Tables(*columns))


def test_a_folder_of_tables_with_three_labels(tmp_path):
    put(tmp_path / "train.tsv", "0\ta\n1\tb\n2\tc\n")
    put(tmp_path / "valid.tsv", "2\tc\n")
    data = load_data(tmp_path)
    assert (len(data.train), len(data.dev), len(data.test)) == (3, 1, 0)
    assert data.labels == ("0", "1", "2")


BROKEN = {
    "empty": ("a.tsv", "", "line 1: .*found no examples"),
    "header only": ("a.tsv", "label\tsentence\n", "line 1: .*found no examples"),
    "a field missing": ("a.tsv", "0\tbad\n1\n", "line 2: expected a label and a sentence, found 1 fields"),
    "a label that is none": (
        "a.tsv",
        "0\tbad\nmaybe\tgood\n",
        "line 2: expected a label such as 0 or 1, found 'maybe'",
    ),
    "a negative label": ("a.tsv", "0\tbad\n-1\tgood\n", "line 2: expected a label"),
    "no sentence": ("a.tsv", "0\tbad\n1\t  \n", "line 2: expected a sentence, found an empty one"),
    "no table": ("a.tsv", "just some prose\n", "line 1: expected a header"),
    "an open quote": ("a.csv", '0,bad\n1,"good\n', "line 2: expected comma-separated values"),
    "empty trees": ("a.txt", "", "line 1: .*found no examples"),
    "an open bracket": ("a.txt", "(3 (2 It) (4 works))\n(3 (2 It)\n", "line 2: expected a whole tree, found 1 bracket"),
    "a label of seven": ("a.txt", "(3 (2 It) (7 works))\n", "line 1: expected a tree"),
    "a bracket too many": ("a.txt", "(3 (2 It) (4 works)))\n", "line 1: expected a tree"),
    "a bare word": ("a.txt", "(3 It (4 works))\n", "line 1: expected"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_named_with_their_line(tmp_path, case):
    name, text, message = BROKEN[case]
    path = put(tmp_path / name, text)
    with pytest.raises(InputError, match=message) as caught:
        load_data(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_broken_bytes_are_named(tmp_path):
    whole = gzip.compress(b"0\tbad\n" * 1000)
    (tmp_path / "a.tsv.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "b.tsv.gz").write_bytes(b"0\tnot gzip\n")
    (tmp_path / "c.tsv").write_bytes(b"0\tfine\n1\t\xff\xfe\n")
    for name, message in (("a.tsv.gz", "whole gzip"), ("b.tsv.gz", "whole gzip"), ("c.tsv", "expected UTF-8")):
        with pytest.raises(InputError, match=message):
            read_table(tmp_path / name)


def test_absent_data_says_what_was_looked_for_and_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"CERTIFORMER_DATA.*certiformer\[hf\]"):
        load_data("sst")
    with pytest.raises(InputError, match=r"looked below .*trees/train\.txt"):
        load_data("sst", data_dir=tmp_path)
    with pytest.raises(InputError, match=r"looked below .*yelp/train\.csv"):
        load_data("yelp", data_dir=tmp_path)
    with pytest.raises(InputError, match="not a folder"):
        load_data("sst", data_dir=tmp_path / "absent")
    with pytest.raises(InputError, match="neither a file, nor a folder, nor one of the known sets sst, yelp"):
        load_data("imdb")


def test_the_hub_is_asked_when_no_folder_is_given(tmp_path, monkeypatch):
    asked = []

    def load_dataset(repository, *, split, cache_dir):
        asked.append((repository, split))
        assert cache_dir.startswith(str(tmp_path))
        column = "text" if repository.startswith("SetFit") else "sentence"
        return [{column: "It's good", "label": 1}, {column: "bad", "label": 0}]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data = load_data("sst")
    assert [part for _, part in asked] == ["train", "validation", "test"]
    assert [(e.label, e.words) for e in data.test] == [(1, ("it", "'s", "good")), (0, ("bad",))]


def test_a_failed_download_is_one_line(monkeypatch):
    def load_dataset(*_args, **_options):
        raise ConnectionError("no\nnetwork")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(InputError, match=r"could not fetch stanfordnlp/sst2.*no network"):
        load_data("sst")
