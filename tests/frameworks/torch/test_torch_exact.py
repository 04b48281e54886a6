"""Where fully_shard changes what a layer computes, no family that uses it claims equality to the last bit."""

import pytest
from torch_cases import case, layer

from d3bot.frameworks.torch.families import FAMILIES
from d3bot.spec import Setting, parse_name

ATTENTION = (layer("att", "attention", "x", heads=2), layer("out", "linear", "att", units=3))
LOSS = parse_name("step 0 loss 0")


@pytest.mark.parametrize(
    "setting",
    ["fsdp2(world=2)", "hsdp(world=4)", "dcp(world=2, onto=2)", "pp_fsdp2(world=4)"],
)
def test_attention_in_a_unit_of_its_own_projects_query_key_and_value_apart(setting: str) -> None:
    apart, whole = Setting.parse(setting), Setting.parse(setting.replace(")", ", wrap=root)"))
    exact = FAMILIES[apart.family].exact
    assert not exact(case(layers=ATTENTION), apart, LOSS)
    assert exact(case(layers=ATTENTION), whole, LOSS)
    assert exact(case(), apart, LOSS)
