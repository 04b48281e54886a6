"""The table of PyTorch setting families: one module each in `settings/`."""

from d3bot.frameworks.base import Family
from d3bot.frameworks.torch.settings import ddp, fsdp1, fsdp2, hsdp, pp, sampler, tp, zero1

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY for module in (ddp, zero1, sampler, fsdp1, fsdp2, hsdp, tp, pp)
}
