"""The history page: what the last nights said of every key and family."""

from d3bot.history.timeline import History, NightRecord, lines, verdict_counts
from d3bot.report.facts import SYMBOLS
from d3bot.report.html import page_environment, page_parts
from d3bot.spec import FAILING

MAX_KEYS = 1000
"""Rows of the table of keys; those that fail now come first."""

STATES = {"fails": ("✗", "k-diverged"), "passes": ("✓", "k-pass"), "flaky": ("~", "k-flaky")}
"""Sign and colour of what a night said of a key."""


def render_history(history: History, report: str = "report.html") -> str:
    """Return the page, which needs nothing else; `report` is the address of the newest run's report beside it."""
    keys = lines(history)
    families = sorted({name for night in history.nights for name in night.families})
    return (
        page_environment()
        .get_template("history.html.j2")
        .render(
            history=history,
            nights=history.nights,
            keys=keys[:MAX_KEYS],
            more_keys=max(0, len(keys) - MAX_KEYS),
            failing_now=sum(each.now == "fails" for each in keys),
            frameworks=sorted({build.framework for night in history.nights for build in night.builds}),
            families=[(name, [_cell(night, name) for night in history.nights]) for name in families],
            family_names=sorted({name.partition(" ")[2] for name in families}),
            kinds=sorted({each.facts.kind for each in keys}),
            symbols=SYMBOLS,
            states=STATES,
            newest=set(history.nights[-1].keys) if history.nights else set(),
            report=report,
            **page_parts(),
        )
    )


def _cell(night: NightRecord, family: str) -> tuple[int, int] | None:
    counts = night.families.get(family)
    return verdict_counts(counts, FAILING) if counts else None
