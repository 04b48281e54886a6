"""Which settings of one case are wrong in the same way, as reports tell it."""

from d3bot.report.facts import against_each_other
from d3bot.spec import Kind, Verdict


def verdict(case: str, setting: str, kind: Kind, *same: str) -> Verdict:
    return Verdict(
        trial=f"t{case}{setting}",
        framework="torch",
        build="b",
        case=case,
        setting=setting,
        kind=kind,
        reason="-",
        same=same,
    )


def test_groups_of_a_case() -> None:
    verdicts = [
        verdict("c1", "fsdp2", "diverged", "hsdp"),
        verdict("c1", "hsdp", "diverged", "fsdp2"),
        verdict("c1", "tp", "diverged"),
        verdict("c1", "ddp", "pass"),
        verdict("c1", "pp", "not-applicable"),
        verdict("c2", "tp", "diverged"),
        verdict("c3", "ddp", "pass"),
    ]
    assert against_each_other(verdicts) == [("c1", [("fsdp2", "hsdp"), ("tp",)], 1)]
