from pathlib import Path

from clop.report.tables import Row, Table, Value, markdown

RUNS = (Path("runs/a"), Path("runs/b"))
TABLE = Table(
    "table2",
    "Returns & more",
    ("game",),
    ("ppo", "clop", "rad"),
    (
        Row(("bigfish",), "paper", {"ppo": Value(4.3, 1.2), "clop": Value(None)}, "5", "25 M", "theirs"),
        Row(
            ("bigfish",), "ours", {"ppo": Value(-0.004, 0.5, -1.0, 1.25, 3, RUNS)}, "3", "1 M", "ours_50", "clop train"
        ),
    ),
    ("A note.",),
)


def test_a_table_is_aligned_markdown():
    assert markdown(["method", "test"], [["plain", "44.4"], ["clop(0.6)", "6.1"]]).splitlines() == [
        "| method    | test |",
        "| --------- | ---: |",
        "| plain     | 44.4 |",
        "| clop(0.6) |  6.1 |",
    ]


def test_a_number_has_its_spread_and_interval_and_published_ones_no_digit_more_than_printed():
    """Fails for −0.00, and for 4.30 ± 1.20 where the paper prints 4.3 ± 1.2."""
    paper, ours = (TABLE.cells(row) for row in TABLE.rows)
    assert paper == ["bigfish", "paper", "4.3 ± 1.2", "n/a", "", "5", "25 M", "theirs", ""]
    assert ours == [
        *("bigfish", "ours", "0.00 ± 0.50 [−1.00, 1.25]", "not run", "not run"),
        *("3", "1 M", "ours_50", "clop train"),
    ]


def test_the_forms_of_a_table_say_the_same():
    page = TABLE.markdown(lambda value: value.runs[0].as_posix())
    assert "[0.00 ± 0.50 [−1.00, 1.25]](runs/a)" in page
    assert "`clop train`" in page
    assert "- A note." in page
    lines = TABLE.csv().splitlines()
    assert lines[1] == "table2,bigfish,paper,ppo,4.3,1.2,,,,25 M,theirs,,"
    assert lines[2] == "table2,bigfish,paper,clop,n/a,,,,,25 M,theirs,,"
    assert lines[3] == "table2,bigfish,ours,ppo,-0.004,0.5,-1,1.25,3,1 M,ours_50,runs/a;runs/b,"
    assert lines[4] == "table2,bigfish,ours,clop,,,,,,1 M,ours_50,not run,clop train"
    assert (
        r"bigfish & ours & 0.00 $\pm$ 0.50 [$-$1.00, 1.25] & not run & not run & 3 & 1 M & ours\_50 \\" in TABLE.latex()
    )
    html = TABLE.html(lambda value: value.runs[0].as_posix())
    assert '<td><a href="runs/a">0.00 ± 0.50 [−1.00, 1.25]</a></td>' in html
    assert "<caption>Returns &amp; more</caption>" in html
