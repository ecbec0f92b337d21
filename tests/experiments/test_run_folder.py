"""The folder of a run, where several processes may want it at once."""

import pytest

from clop.errors import UsageError
from clop.experiments.run_folder import RunFolder


def test_a_process_killed_while_it_made_a_folder_leaves_one_that_can_be_used(tmp_path):
    """Fails if the draft of config.json counts as something of the user's."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config-x1.json").write_text("{")
    RunFolder.create(tmp_path / "run", "agent", {"seed": 1})
    assert RunFolder(tmp_path / "run").config == {"seed": 1}


def test_two_processes_that_make_the_same_run_at_once_both_find_it(tmp_path):
    """The lease decides who writes. Fails if the slower one takes the folder for somebody else's."""
    RunFolder.create(tmp_path / "run", "agent", {"seed": 1, "wrappers": ()})
    assert RunFolder.create(tmp_path / "run", "agent", {"seed": 1, "wrappers": ()}).config["seed"] == 1
    with pytest.raises(UsageError, match="is not empty and nothing in it will be overwritten"):
        RunFolder.create(tmp_path / "run", "agent", {"seed": 2, "wrappers": ()})
