"""The table of PyTorch setting families: one module each in `settings/`."""

from d3bot.frameworks.base import Family
from d3bot.frameworks.torch.settings import (
    collectives,
    cp,
    dcp,
    ddp,
    ddp_tp,
    dtensor,
    fsdp1,
    fsdp2,
    fsdp2_tp,
    hsdp,
    hsdp_tp,
    pp,
    pp_ddp,
    pp_fsdp2,
    sampler,
    torchrec,
    tp,
    zero1,
)

_MODULES = (
    ddp,
    zero1,
    sampler,
    fsdp1,
    fsdp2,
    hsdp,
    tp,
    fsdp2_tp,
    hsdp_tp,
    ddp_tp,
    dcp,
    dtensor,
    pp,
    pp_ddp,
    pp_fsdp2,
    collectives,
    cp,
    torchrec,
)

FAMILIES: dict[str, Family] = {module.FAMILY.name: module.FAMILY for module in _MODULES}
