"""What a run does on its way: the output of every layer and every collective, in the order in which they come.

The script's text stays as it is.  `build` and `data` are replaced by watched ones, and the library's own hooks do the
rest: PyTorch's hook on every module's forward and a dispatch mode, which sees the collectives that C++ starts too;
Keras' `Layer.__call__` and the reductions of `tf.distribute`, whose numbers leave a graph through `tf.numpy_function`.

An event is a dict: `kind` (layer or collective), `name`, `step`, `shape`, `arrays` (numbers of what was kept: a layer's
output; what went into a collective, and what came out), and for a collective `group`, `sizes` and `reduces`.  It stands
in `trace-NAME.json` beside `trace-NAME.npz`, which holds the arrays as `a0`, `a1`, ...
"""

import contextlib
import json
import os
import sys
import threading

import numpy as np

MOST_EVENTS = 4000
MOST_BYTES = 64 * 2**20


class Record:
    """Collects events; what is beyond the limits is counted and left out."""

    def __init__(self):
        self.events, self.arrays, self.step, self.bytes, self.dropped = [], [], 0, 0, 0
        self.lock = threading.Lock()

    def add(self, kind, name, arrays, **more):
        """Append an event with copies of its arrays (None for what is not known)."""
        kept = [None if array is None else np.array(array) for array in arrays]
        size = sum(array.nbytes for array in kept if array is not None)
        with self.lock:
            if len(self.events) >= MOST_EVENTS or self.bytes + size > MOST_BYTES:
                self.dropped += 1
                return
            self.bytes += size
            numbers = []
            for array in kept:
                numbers.append(None if array is None else len(self.arrays))
                if array is not None:
                    self.arrays.append(array)
            self.events.append({"kind": kind, "name": name, "step": self.step, "arrays": numbers, **more})

    def save(self, folder, name):
        np.savez(os.path.join(folder, f"trace-{name}.npz"), **{f"a{i}": a for i, a in enumerate(self.arrays)})
        path = os.path.join(folder, f"trace-{name}.json")
        with open(path + ".part", "w") as file:
            json.dump({"events": self.events, "dropped": self.dropped}, file)
        os.replace(path + ".part", path)


@contextlib.contextmanager
def traced(script, framework, folder, name):
    """Watch what runs inside, and save it when it ends, however it ends."""
    record = Record()
    build, data = script.build, script.data
    watch = {"torch": watch_torch, "tensorflow": watch_tensorflow}[framework]

    def watched_data(step):
        record.step = step
        return data(step)

    try:
        with watch(record) as mark:
            script.build = lambda: mark(build())
            script.data = watched_data
            yield
    finally:
        script.build, script.data = build, data
        record.save(folder, name)


OF_NO_NUMBERS = ("wait_tensor", "barrier", "monitored_barrier", "wrap_tensor_autograd")
REDUCING = ("allreduce", "all_reduce", "reduce_scatter")


def watch_torch(record):
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    def numbers(tensor):
        tensor = tensor.detach()
        if tensor.dtype in (torch.bfloat16, torch.float16):
            tensor = tensor.float()
        return tensor.clone().numpy()  # an array that NumPy was given keeps its storage, which FSDP1 resizes

    def placed(tensor):
        """Return this rank's numbers of an output, and where in the whole they lie (None for a plain tensor)."""
        if not hasattr(tensor, "_spec"):
            return numbers(tensor), None
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        place = {"whole": list(tensor.shape), "offset": list(offset)}
        place["partial"] = any(item.is_partial() for item in tensor.placements)
        return numbers(tensor._local_tensor), place

    def keep(kind, name, tensor, **more):
        if torch._C._current_graph_task_id() != -1:
            return  # computed again, for the backward pass
        with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
            array, place = placed(tensor)
        record.add(kind, name, [array], shape=list(tensor.shape), place=place, **more)

    def before_forward(module, inputs):
        given = [item for item in inputs if isinstance(item, torch.Tensor)]
        if module.__dict__.get("_traced_as") == "" and given:  # what the model is given tells which rows these are
            keep("input", "", given[0])

    def after_forward(module, inputs, output):
        name = module.__dict__.get("_traced_as")
        first = output[0] if isinstance(output, tuple) and output else output
        if name and isinstance(first, torch.Tensor):
            keep("layer", name, first, of=type(module).__name__)

    def tensors(value):
        if isinstance(value, torch.Tensor):
            return [value]
        return [leaf for item in value for leaf in tensors(item)] if isinstance(value, list | tuple) else []

    def group_of(args):
        import torch.distributed as dist

        for value in args:
            with contextlib.suppress(Exception):
                if isinstance(value, torch.ScriptObject):
                    return list(dist.get_process_group_ranks(dist.ProcessGroup.unbox(value)))
                if isinstance(value, str):
                    group = torch.distributed.distributed_c10d._resolve_process_group(value)
                    return list(dist.get_process_group_ranks(group))
        return None

    def ended(result):
        """Wait for what the operation started, so that its numbers are there; not for what a peer must answer first."""
        for value in result if isinstance(result, list | tuple) else [result]:
            if isinstance(value, torch.ScriptObject):
                torch.distributed.Work.unbox(value).wait()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if any(kind.__name__ == "DTensor" for kind in types):
                return NotImplemented  # let it come down to the collectives that it needs
            kwargs = kwargs or {}
            name = func.__name__.split(".")[0].strip("_")
            mine = func.namespace in ("c10d", "_c10d_functional") and name not in OF_NO_NUMBERS
            if not mine:
                return func(*args, **kwargs)
            sides = [numbers_of(side) for side in sides_of(func, name, args)]
            result = func(*args, **kwargs)
            out = None
            if name not in ("send", "recv", "recv_any_source"):
                with contextlib.suppress(AttributeError):
                    ended(result)
                made = tensors(result)
                if func.namespace == "_c10d_functional":
                    made = [torch.ops._c10d_functional.wait_tensor(item) for item in made]
                out = flat(made or tensors(args[0]))
            before = flat(sides[0]) if sides else None
            sizes = [list(item.shape) for item in (sides[0] if sides else made)]
            record.add(
                "collective", name, [before, out], sizes=sizes, group=group_of(args), reduces=name.startswith(REDUCING)
            )
            return result

    def sides_of(func, name, args):
        """Return the tensors that go into a collective: its last argument of tensors, whatever it writes to first."""
        found = [tensors(item) for item in args]
        found = [item for item in found if item]
        return found[-1:] if name.startswith(("allgather", "reduce_scatter", "alltoall", "gather")) else found[:1]

    def numbers_of(side):
        return [item.detach().clone() for item in side]

    def flat(items):
        return np.concatenate([numbers(item).ravel() for item in items]) if items else None

    def mark(model):
        for name, module in model.named_modules():
            module.__dict__["_traced_as"] = name
        return model

    @contextlib.contextmanager
    def watching():
        modules = torch.nn.modules.module
        handles = (
            modules.register_module_forward_pre_hook(before_forward),
            modules.register_module_forward_hook(after_forward),
        )
        try:
            with Watch():
                yield mark
        finally:
            for handle in handles:
                handle.remove()

    return watching()


def watch_tensorflow(record):
    import tensorflow as tf
    from tensorflow.python.distribute import cross_device_ops

    lock = threading.Lock()
    names = {}

    def alone(what):
        """Return a function that records the numbers given to it, one thread at a time."""

        def kept(*arrays):
            with lock:
                what(*arrays)
            return np.zeros((), "int32")

        return kept

    def tap(what, values):
        dense = [tf.convert_to_tensor(value) for value in values]
        if tf.executing_eagerly():
            alone(what)(*(value.numpy() for value in dense))
        else:
            tf.numpy_function(alone(what), dense, tf.int32)

    def replica():
        context = tf.distribute.get_replica_context()
        number = None if context is None else tf.get_static_value(context.replica_id_in_sync_group)
        return 0 if number is None else int(number)

    def watched_call(plain_call):
        def called(layer, *args, **kwargs):
            name = names.get(id(layer))
            given = args[0] if args else None
            given = given[0] if isinstance(given, list | tuple) and given else given
            if name == "" and isinstance(
                given, tf.Tensor | np.ndarray
            ):  # what the model is given tells which rows these are
                keep("input", "", given)
            output = plain_call(layer, *args, **kwargs)
            first = output[0] if isinstance(output, list | tuple) and output else output
            if name and isinstance(first, tf.Tensor):
                keep("layer", name, first, of=type(layer).__name__)
            return output

        return called

    def keep(kind, name, value, **more):
        number = replica()
        tap(lambda x: record.add(kind, name, [x], shape=list(x.shape), replica=number, **more), [value])

    def parts(value):
        return list(getattr(value, "values", None) or [value])

    def apart(count, kind):
        """Return a function that records what went in, one array a replica, and what came out."""

        def kept(*arrays):
            given, made = (np.stack([np.ravel(item) for item in side]) for side in (arrays[:count], arrays[count:]))
            sizes, group = [list(arrays[0].shape)], list(range(count))
            record.add("collective", kind, [given, made], sizes=sizes, group=group, reduces=True)

        return kept

    def watched(plain, many):
        def reduced(self, reduce_op, *args, **kwargs):
            result = plain(self, reduce_op, *args, **kwargs)
            given = [pair[0] for pair in args[0]] if many else [args[0]]
            made = list(result) if many else [result]
            for one, out in zip(given, made, strict=False):
                values, outs = parts(one), parts(out)
                if any(isinstance(item, tf.IndexedSlices) for item in [*values, *outs]):
                    continue
                tap(apart(len(values), type(self).__name__), [*values, *outs])
            return result

        return reduced

    def mark(model):
        names[id(model)] = ""
        for layer in model._flatten_layers(include_self=False, recursive=False):
            names[id(layer)] = layer.path if hasattr(layer, "path") else layer.name
        return model

    @contextlib.contextmanager
    def watching():
        base = cross_device_ops.CrossDeviceOps
        plain = base.reduce, base.batch_reduce
        layers = [sys.modules[name].layers.Layer for name in ("keras", "tf_keras") if name in sys.modules]
        calls = {kind: kind.__call__ for kind in layers}
        for kind, plain_call in calls.items():
            kind.__call__ = watched_call(plain_call)
        base.reduce, base.batch_reduce = watched(plain[0], False), watched(plain[1], True)
        try:
            yield mark
        finally:
            for kind, plain_call in calls.items():
                kind.__call__ = plain_call
            base.reduce, base.batch_reduce = plain

    return watching()
