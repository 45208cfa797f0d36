"""The store: what a kill, a flipped bit, a full disk or a second writer do to it."""

from __future__ import annotations

import errno

import pytest

from certiformer.errors import InputError
from certiformer.sweep.store import MANIFEST, Store, read_manifest, settle


def test_a_torn_line_is_passed_over_and_the_next_one_starts_on_its_own(tmp_path):
    with Store(tmp_path) as store:
        store.add([("a", {"x": 0.1}), ("b", {"x": "é"})])
    with store.path.open("ab") as file:
        file.write(b'{"key": "c", "x": 1')
    again = Store(tmp_path)
    assert (again.keys, again.damaged) == ({"a", "b"}, 1)
    with again:
        again.add([("c", {"x": 2})])
    assert [r["key"] for r in Store(tmp_path).records()] == ["a", "b", "c"]
    assert {r["key"]: r["x"] for r in Store(tmp_path).records()} == {"a": 0.1, "b": "é", "c": 2}


@pytest.mark.parametrize("at", [12, 20, 30])
def test_a_line_that_was_changed_does_not_count(tmp_path, at):
    with Store(tmp_path) as store:
        store.add([("a", {"certified": 0.125}), ("b", {"certified": 0.5})])
    content = bytearray(store.path.read_bytes())
    content[at] ^= 1
    store.path.write_bytes(bytes(content))
    again = Store(tmp_path)
    assert (again.keys, again.damaged) == ({"b"}, 1)


def test_a_line_without_a_checksum_counts_only_where_that_is_said(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"key": "a", "x": 1}\n')
    assert Store(tmp_path).keys == set()
    assert Store(tmp_path, unsummed=True).keys == {"a"}


def test_stores_of_several_parts_are_read_together_and_a_key_once(tmp_path):
    for part, keys in (("-1of2", "ab"), ("-2of2", "bc")):
        with Store(tmp_path, part=part) as store:
            store.keys.clear()
            store.add([(key, {"by": part}) for key in keys])
    assert [(r["key"], r["by"]) for r in Store(tmp_path).records()] == [("a", "-1of2"), ("b", "-1of2"), ("c", "-2of2")]


def test_there_is_one_writer(tmp_path):
    with Store(tmp_path) as store:
        with pytest.raises(InputError, match="another run writes to it"), Store(tmp_path):
            pass
        store.add([("a", {})])
    with Store(tmp_path, part="-2of2"), Store(tmp_path):
        pass  # another part, and the first is free again


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    with Store(tmp_path) as store:
        store.add([("a", {})])
        before = store.path.read_bytes()

        def full(handle: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="1 finished are kept, the same command goes on"):
            store.add([("b", {})])
    assert store.path.read_bytes() == before


def test_a_folder_is_for_one_sweep(tmp_path):
    settle(tmp_path, {"eps": [0.1], "models": [{"name": "a", "weights": "1"}]})
    settle(tmp_path, {"eps": [0.1], "models": [{"name": "a", "weights": "1"}]})
    with pytest.raises(InputError, match=r"with eps \[0.1\] and not \[0.2\]; model a.weights '1' and not '2'"):
        settle(tmp_path, {"eps": [0.2], "models": [{"name": "a", "weights": "2"}]})
    assert read_manifest(tmp_path)["eps"] == [0.1]
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(InputError, match=r"holds rows, but no manifest\.json"):
        settle(tmp_path, {"eps": [0.1]})
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        read_manifest(tmp_path)
