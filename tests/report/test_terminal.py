import io
import re
from collections import Counter

import pytest
from rich.console import Console

from d3bot.history.changes import compare
from d3bot.report import Progress, print_summary
from d3bot.report.terminal import STYLES, print_changes, print_rows
from d3bot.spec import KINDS, Setting, Trial
from tests.findings.samples import KEY, case, finding, run, verdict

TRIAL = Trial(case=case(), setting=Setting.parse("ddp(world=2)"))


def console(terminal=False):
    return Console(file=io.StringIO(), width=100, force_terminal=terminal, color_system=None)


def printed(screen):
    return screen.file.getvalue()


def test_the_summary_ends_with_counts_and_headline():
    before = [verdict("pass", "c1"), verdict("hung", "c2"), verdict("no-data", "c3")]
    after = [verdict("diverged", "c1", key=KEY), verdict("pass", "c2"), verdict("hung", "c3"), verdict("no-data", "c4")]
    screen = console()
    print_summary(screen, run(previous="r0", seconds=125), after, compare(before, after), [finding()])
    lines = printed(screen).splitlines()
    assert lines[0].split() == ["setting", "✓", "pass", "≠", "diverged", "…", "hung", "?", "no-data"]
    assert lines[1].split() == ["torch", "fsdp2(world=2,", "shard_dim=1)", "1", "1", "1", "1"]
    assert lines[3:] == [
        "1 no-data: it is no-data",
        f"regressed: torch fsdp2(world=2, shard_dim=1) c1: pass -> diverged ({KEY})",
        "fixed: torch fsdp2(world=2, shard_dim=1) c2: hung -> pass",
        "failing, unknown since when: torch fsdp2(world=2, shard_dim=1) c3: no-data -> hung",
        f"finding {KEY}: weight gradients differ",
        "  step 0 grad fc.weight, max |difference| 0.227, bound 0; verified; unknown",
        "Of 3 cases 100.0 % trained in one process, and 0.0 % could not have shown a fault",
        "4 trials in 2 min 05 s: 1 new, 1 fixed, 0 still failing, 0 flaky, 1 no-data, 1 indeterminate, 0 lost, 1 pass, "
        "1 diverged, 1 hung",
        "INCONCLUSIVE: 1 of 4 trials gave no data; 1 trial failing, unknown since when; 1 new failure under 1 key",
    ]


def test_of_many_settings_the_families_are_told():
    seen = [verdict("pass", "c1", f"{family}(world={size})") for family in ("ddp", "tp") for size in range(1, 9)]
    screen = console()
    print_summary(screen, run(), [*seen, verdict("hung", "c2", "tp(world=8)")], [], [])
    lines = printed(screen).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["family", "✓", "pass", "…", "hung"],
        ["torch", "ddp", "8"],
        ["torch", "tp", "8", "1"],
    ]


def test_a_long_list_of_changes_is_counted_at_its_end():
    after = [verdict("hung", f"c{i}") for i in range(30)]
    screen = console()
    print_summary(screen, run(previous="r0"), after, compare([verdict("pass", f"c{i}") for i in range(30)], after), [])
    assert "regressed: 10 more" in printed(screen)


def test_changes_alone_are_listed_in_full_and_counted():
    before = [verdict("pass", f"c{i}") for i in range(25)] + [verdict("no-data", "c90"), verdict("pass", "c91")]
    after = [verdict("hung", f"c{i}") for i in range(25)] + [verdict("hung", "c90"), verdict("pass", "c91")]
    screen = console()
    changes = compare(before, after)
    print_changes(screen, changes, Counter(change.change for change in changes))
    lines = printed(screen).splitlines()
    assert len([each for each in lines if each.startswith("regressed: torch fsdp2(world=2, shard_dim=1) c")]) == 25
    assert lines[25:] == [
        "failing, unknown since when: torch fsdp2(world=2, shard_dim=1) c90: no-data -> hung",
        "25 regressed, 1 indeterminate, 1 still-passing",
    ]


def test_an_empty_run_is_no_data():
    screen = console()
    print_summary(screen, run(previous="r0"), [], [], [])
    assert printed(screen).splitlines()[-1] == "NO DATA"


def test_every_kind_has_a_style():
    assert set(STYLES) == set(KINDS)


HOSTILE = "[bold red]x[/] \x1b[2J\n::error::stop ##[error]y"


@pytest.mark.parametrize("terminal", [True, False])
def test_text_from_a_test_is_shown_as_text(terminal):
    screen = console(terminal)
    with Progress(screen, 2) as progress:
        progress.note(HOSTILE)
        progress.running(TRIAL)
        progress.finished(verdict("crashed", reason=HOSTILE))
    print_summary(screen, run(), [verdict("no-data", reason=HOSTILE)], [], [finding(title=HOSTILE)])
    assert "[bold red]x[/] ::error::stop # #[error]y" in printed(screen)
    assert "\x1b[2J\n" not in printed(screen)
    assert not [each for each in printed(screen).splitlines() if each.lstrip().startswith("::")]


def test_plain_progress_shows_failures_at_once_and_how_far_it_is_now_and_then():
    now = 0.0
    screen = console()
    with Progress(screen, 10, clock=lambda: now) as progress:
        for i in range(8):
            now += 10
            progress.running(TRIAL)
            progress.finished(verdict("hung" if i == 3 else "pass", f"c{i}"))
    assert printed(screen).splitlines() == [
        "3 of 10 trials in 30 s, 0 failing, about 1 min 10 s left",
        "… hung torch fsdp2(world=2, shard_dim=1) c3: it is hung",
        "6 of 10 trials in 1 min 00 s, 1 failing, about 40 s left",
    ]


def test_plain_progress_of_unknown_length_promises_no_end():
    now = 0.0
    screen = console()
    with Progress(screen, None, clock=lambda: now) as progress:
        now = 60.0
        progress.finished(verdict())
    assert printed(screen) == "1 trial in 1 min 00 s, 0 failing\n"


def test_passes_and_refusals_are_silent():
    screen = console()
    with Progress(screen, 3) as progress:
        for kind in ("pass", "refused", "not-applicable"):
            progress.finished(verdict(kind))
    assert printed(screen) == ""


def test_on_a_terminal_a_bar_shows_what_runs_and_the_failures():
    screen = console(terminal=True)
    with Progress(screen, 3) as progress:
        progress.finished(verdict("hung", "c1"))
        progress.running(TRIAL)
    text = printed(screen)
    assert "… hung torch fsdp2(world=2, shard_dim=1) c1: it is hung" in text
    assert "1/3" in text
    assert "1 failing · ddp(world=2)" in text


def test_a_run_of_so_many_minutes_tells_what_is_left_of_them():
    now = 0.0
    screen = Console(file=io.StringIO(), width=200)
    with Progress(screen, None, seconds=300, clock=lambda: now) as progress:
        now = 60.0
        progress.finished(verdict())
    assert "about 4 min 00 s left" in screen.file.getvalue()


def test_a_quiet_console_shows_nothing():
    screen = Console(file=io.StringIO(), width=200, quiet=True, force_terminal=True)
    with Progress(screen, 1) as progress:
        progress.finished(verdict("hung"))
    assert screen.file.getvalue() == ""


ROWS = [
    {"framework": "torch", "family": "ddp", "summary": "a replica a rank", "options": "world: " + "1, " * 40 + "8"},
    {"framework": "torch", "family": "tp", "summary": "x" * 100, "options": ""},
]


def test_a_list_fits_into_eighty_columns_of_a_terminal():
    screen = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    print_rows(screen, ROWS, 2)
    lines = printed(screen).splitlines()
    assert max(map(len, lines)) <= 80
    assert [each for each in lines if not each.startswith("    ")] == ["torch ddp", "torch tp"]
    assert lines[1].strip() == "a replica a rank"
    assert lines[2].startswith("    options: world: 1,")


def test_a_list_that_is_piped_has_a_line_a_text():
    screen = Console(file=io.StringIO(), width=80)
    print_rows(screen, ROWS, 2)
    assert printed(screen).splitlines() == [
        "torch ddp",
        "    a replica a rank",
        f"    options: {ROWS[0]['options']}",
        "torch tp",
        f"    {'x' * 100}",
    ]


def test_without_colours_failures_are_told_by_their_sign():
    screen = Console(file=io.StringIO(), width=100, force_terminal=True, no_color=True)
    with Progress(screen, 1) as progress:
        progress.finished(verdict("diverged"))
    print_summary(screen, run(previous="r0"), [verdict("diverged"), verdict("pass", "c1")], [], [finding()])
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", printed(screen)), "a colour"
    assert "≠ diverged torch fsdp2" in printed(screen)
