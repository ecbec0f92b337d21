from clop.report.tables import markdown


def test_a_table_is_aligned_markdown():
    assert markdown(["method", "test"], [["plain", "44.4"], ["clop(0.6)", "6.1"]]).splitlines() == [
        "| method    | test |",
        "| --------- | ---: |",
        "| plain     | 44.4 |",
        "| clop(0.6) |  6.1 |",
    ]
