"""A record says what was run, and is refused if it is none."""

import subprocess

import pytest

from clop.errors import UsageError
from clop.experiments import record
from clop.experiments.record import RecordBuilder, RunRecord


def test_a_record_survives_writing_and_reading(tmp_path):
    made = RecordBuilder("vision", {"seed": 3}).record({"accuracy": 97.5})
    made.write(tmp_path / "run.json")
    read = RunRecord.read(tmp_path / "run.json")
    assert read == made
    assert read.ended == "complete"
    assert read.machine["versions"]["torch"]


@pytest.mark.parametrize("text", ["{", "[]", '{"config": {}}'])
def test_what_is_no_record_is_refused_with_a_sentence(text, tmp_path):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UsageError, match="is no run record"):
        RunRecord.read(tmp_path / "run.json")


def test_a_missing_record_is_told(tmp_path):
    with pytest.raises(UsageError, match="no run record at"):
        RunRecord.read(tmp_path / "run.json")


def test_outside_a_checkout_there_is_no_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(record, "__file__", str(tmp_path / "record.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert record.commit() is None


def test_a_copy_that_lies_in_the_repository_of_somebody_else_has_no_commit(monkeypatch, tmp_path):
    """Fails when a package in a virtual environment takes the commit of the project around it for its own."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    (tmp_path / "theirs.py").write_text("")
    for words in (["init", "-q"], ["add", "theirs.py"], ["commit", "-qm", "theirs"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    (tmp_path / "record.py").write_text("")
    monkeypatch.setattr(record, "__file__", str(tmp_path / "record.py"))
    assert record.commit() is None
    monkeypatch.setattr(record, "__file__", str(tmp_path / "theirs.py"))  # the control
    assert len(record.commit()) == 40
