"""The table of TensorFlow setting families: one module each in `settings/`."""

from d3bot.frameworks.base import Family
from d3bot.frameworks.tensorflow.settings import mirrored, multi_worker, parameter_server

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY for module in (mirrored, multi_worker, parameter_server)
}
