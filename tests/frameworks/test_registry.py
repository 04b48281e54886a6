import pytest

from d3bot.frameworks import cost, families
from d3bot.spec import FRAMEWORKS, Framework, Setting


@pytest.mark.parametrize(
    ("framework", "less", "more"),
    [
        ("torch", "ddp(world=2)", "ddp(world=3)"),
        ("torch", "ddp(world=2)", "pp(world=2)"),
        ("torch", "pp(world=2)", "fsdp2(world=2)"),
        ("torch", "fsdp2(world=2)", "tp(world=2)"),
        ("tensorflow", "mirrored(replicas=2)", "mirrored(replicas=3)"),
        ("tensorflow", "parameter_server(workers=1)", "parameter_server(workers=2)"),
    ],
)
def test_a_setting_costs_more_with_more_ranks_and_more_work_a_rank(framework: Framework, less: str, more: str) -> None:
    assert cost(framework, Setting.parse(less)) < cost(framework, Setting.parse(more))


@pytest.mark.parametrize(
    ("framework", "name"), [(framework, name) for framework in FRAMEWORKS for name in families(framework)]
)
def test_where_no_layer_may_freeze_late_none_may_thaw(framework: Framework, name: str) -> None:
    excluded = families(framework)[name].contract.excluded
    assert ("thaw" in excluded) or ("late-freeze" not in excluded)
