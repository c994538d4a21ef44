"""Rows, tables and the page they are shown on."""

from loadtest.report.page import render
from loadtest.report.row import FigureRow
from loadtest.report.setting import RunSetting
from loadtest.report.table import Table


def test_rows_say_whether_they_are_as_wanted() -> None:
    table = Table("group")
    table.faster("fast", ([0.1], [0.01]), at_least=5.0)
    table.times("long", ([0.01], [0.03]), "short", 2.0)
    table.figure("memory", "MB", 30.0, at_most=40.0)
    table.figure("throughput", "chunks/s", 1000.0)
    assert [row.met for row in table.rows] == [True, False, True, None]
    assert _quick_row().met is None


def _quick_row() -> FigureRow:
    table = Table("group", judged=False)
    table.faster("fast", ([0.1], [0.01]), at_least=50.0)
    return table.rows[0]


def test_the_table_names_its_setting_and_caveats() -> None:
    setting = RunSetting(command="cmd", model="m", shards=1, rounds=2, max_model_len=3, vllm="0.33")
    text = render(setting, [_quick_row()])
    assert "vLLM 0.33" in text and "command: cmd" in text and "| group | fast | 100 ms" in text
    assert "in turn" in text
