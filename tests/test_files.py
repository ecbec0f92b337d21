"""Files are written whole or not at all."""

import json

import pytest

from clop.files import write_atomic, write_json


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "record.json"
    write_json(path, {"a": 1})

    def fail(draft):
        draft.write_text("half")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write_atomic(path, fail)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]


def test_folders_are_made_and_the_file_is_readable_by_others(tmp_path):
    path = tmp_path / "a" / "b.json"
    write_json(path, [1])
    assert path.stat().st_mode & 0o044
