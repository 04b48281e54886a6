"""A layer becomes an attribute of the model: none may take the place of one that the library needs."""

import re
from collections.abc import Callable

from d3bot.spec import Observation
from d3bot.spec.reserved import RESERVED


def test_every_attribute_of_a_module_is_reserved(run: Callable[..., Observation]) -> None:
    seen = run("print('names', *dir(torch.nn.Module())); return {'predict': np.ones(1)}", processes=1)
    names = [name for name in seen.ranks[0].output.split() if re.fullmatch("[a-z][a-z0-9_]{0,39}", name)]
    assert "forward" in names
    assert set(names) - {"names"} <= RESERVED
