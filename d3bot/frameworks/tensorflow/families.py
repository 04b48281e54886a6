"""The table of TensorFlow setting families: one module each in `settings/`."""

from d3bot.frameworks.base import Family
from d3bot.frameworks.tensorflow.settings import (
    central_storage,
    dtensor,
    mirrored,
    multi_worker,
    one_device,
    parameter_server,
    restore,
    tf_keras,
)

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (one_device, mirrored, central_storage, multi_worker, parameter_server, dtensor, restore, tf_keras)
}
