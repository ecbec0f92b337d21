"""How concentrated maps are, over networks and in words.

``python tests/report/test_saliency.py`` writes the tables of ``docs/saliency.md`` anew after a measurement.
"""

import re
from pathlib import Path

import pytest

from clop.errors import UsageError
from clop.experiments.record import RunRecord
from clop.report.saliency import block_text, decisions, groups, table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "saliency.md"
_BLOCK = re.compile(r"(<!-- saliency -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def with_tables(text, folder=ROOT / "results" / "saliency"):
    """The page with the block between its marks made from the records."""
    records = [RunRecord.read(path) for path in sorted(folder.glob("*.json"))]
    return _BLOCK.sub(lambda block: block[1] + block_text(records) + block[3], text)


def record(*means, kind="saliency"):
    networks = [
        {
            "label": "clop",
            "seed": seed,
            "run": "",
            "empty": 0.25,
            "entropy": interval(mean),
            "half_mass": interval(mean),
        }
        for seed, mean in enumerate(means)
    ]
    metrics = {"frames": 1000, "levels": 40, "source": "bigfish", "networks": networks}
    return RunRecord(kind, {"target": "logit"}, metrics, "complete", "", None, "", 0.0, {})


def interval(mean):
    return {"mean": mean, "low": None if mean is None else mean - 0.1, "high": None if mean is None else mean + 0.1}


def test_intervals_are_over_networks_from_three_on_and_over_levels_of_one():
    """Fails if the levels' interval of one network is passed off as one over seeds."""
    (group,) = groups(record(0.1, 0.2, 0.3))
    found = group.estimate("entropy")
    assert (found.value, found.high) == pytest.approx((0.2, 0.2 + 0.1 * 4.30265 / 3**0.5), abs=1e-5)
    assert groups(record(0.1, 0.2))[0].estimate("entropy").low is None
    assert groups(record(0.5))[0].estimate("entropy").high == pytest.approx(0.6)


def test_networks_whose_maps_are_all_empty_are_left_out_and_counted():
    (group,) = groups(record(0.1, None))
    assert group.estimate("entropy").value == 0.1
    assert group.empty == 0.25
    assert "n/a" in table(record(None))


def test_another_record_is_refused():
    with pytest.raises(UsageError, match="expected a record of kind 'saliency', got 'bench layer'"):
        groups(record(0.1, kind="bench layer"))


def labelled(**means):
    names = {"narrow": "clop", "wide": "clop(local=False)", "ppo": "ppo"}
    rows = [dict(row, label=names[key]) for key, found in means.items() for row in record(*found).metrics["networks"]]
    return RunRecord("saliency", {"target": "logit"}, record().metrics | {"networks": rows}, "", "c", None, "", 0.0, {})


def test_a_claim_is_decided_by_welchs_interval_of_the_entropy():
    """Fails if two seeds decide, or if the sign of a difference is turned."""
    found = {row[0]: row for row in decisions(labelled(narrow=[0.50, 0.51, 0.52], wide=[0.8, 0.81, 0.82]))}
    wider = found["clop(local=False) − clop"]
    assert wider[2].startswith("0.300 [0.27")
    assert wider[-1] == "reproduced"
    assert found["random weights − clop"][-1] == "not run"
    turned = decisions(labelled(narrow=[0.8, 0.81, 0.82], wide=[0.50, 0.51, 0.52]))[0]
    assert turned[2].startswith("−0.300")
    assert turned[-1] == "contradicted"
    assert decisions(labelled(narrow=[0.5, 0.51], wide=[0.8, 0.81, 0.82]))[0][-1] == "too few seeds"
    assert decisions(labelled(narrow=[0.5, 0.5, 0.6], ppo=[0.8, 0.8, 0.9]))[-1][-1] == ""  # the paper claims nothing


def test_the_page_has_the_tables_of_the_records(tmp_path):
    """Fails if something was measured and the page was not written anew."""
    text = PAGE.read_text()
    assert len(_BLOCK.findall(text)) == 1
    assert with_tables(text) == text
    labelled(narrow=[0.5], wide=[0.8]).write(tmp_path / "looks.json")
    assert "| clop(local=False) − clop" in with_tables(text, tmp_path)
    assert "Not measured yet" in with_tables(text, tmp_path / "nothing")


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
