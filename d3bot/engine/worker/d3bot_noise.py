"""The noise of a case's own arithmetic: `build` and `data` of a script replaced by disturbed ones.

A sum taken in another order and a parameter moved by one unit in the last place are changes that no promise of the
library excludes; how far they move a tensor is what a healthy distributed run may differ by.

A script of one batch has `data()` instead of `data(step)`: what is `asked` is one step or nothing.

`data` replaced by that of one rank alone gives what this rank has before anything is reduced over the ranks.
"""

import numpy as np


class Noise:
    """What both frameworks share: data are tuples of arrays whose first dimension is the batch."""

    def reordered_data(self, data, parts, steps, seed):
        """Return `data` with the rows permuted inside each of the parts that the reference splits a batch into.

        The probe batch (step `steps`) stays as it is: its rows are compared one by one.
        """

        def reordered(*asked):
            batch, step = data(*asked), sum(asked)
            if step >= steps:
                return batch
            rng = np.random.default_rng(1000 * seed + step)
            pieces = np.array_split(np.arange(len(batch[0])), parts)
            order = np.concatenate([rng.permutation(piece) for piece in pieces])
            return tuple(self.rows(array, order) for array in batch)

        return reordered

    def moved_data(self, data, seed):
        """Return `data` with every real number moved to a neighbouring floating-point number."""

        def moved(*asked):
            rng = np.random.default_rng(7000 * (seed + 1) + sum(asked))
            return tuple(self.moved(array, rng) for array in data(*asked))

        return moved

    def shared_data(self, data, kept, pieces, parts, steps):
        """Return `data` whose batches hold the rows of some pieces of `pieces` alone, once for each of the parts.

        The mean over the parts is then those pieces' own.  The probe batch stays whole.
        """

        def shared(*asked):
            batch = data(*asked)
            if sum(asked) >= steps:
                return batch
            split = np.array_split(np.arange(len(batch[0])), pieces)
            rows = np.concatenate([split[piece] for piece in kept])
            return tuple(self.rows(array, np.tile(rows, parts)) for array in batch)

        return shared

    def rows(self, array, order):
        return array[order]

    def moved(self, array, rng):
        if not np.issubdtype(array.dtype, np.floating):
            return array
        direction = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
        return np.nextafter(array, direction)


class TorchNoise(Noise):
    """Data are tensors, `build` returns a module."""

    def rows(self, array, order):
        import torch

        return array[torch.from_numpy(order)]

    def moved(self, array, rng):
        import torch

        if not array.is_floating_point():
            return array
        up = torch.from_numpy(rng.random(tuple(array.shape)) < 0.5)
        direction = torch.where(up, torch.inf, -torch.inf).to(array.dtype)
        return torch.nextafter(array, direction)

    def moved_build(self, build, seed):
        import torch

        def moved():
            model = build()
            rng = np.random.default_rng(9000 + seed)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(self.moved(parameter, rng))
            return model

        return moved

    def parameters(self, model):
        return {f"param {name}": p.detach().numpy() for name, p in model.named_parameters()}


class TensorflowNoise(Noise):
    """Data are numpy arrays, `build` returns a built Keras model."""

    def moved_build(self, build, seed):
        def moved():
            model = build()
            rng = np.random.default_rng(9000 + seed)
            for variable in model.trainable_variables:
                variable.assign(self.moved(variable.numpy(), rng))
            return model

        return moved

    def parameters(self, model):
        return {f"param {getattr(v, 'path', v.name)}": v.numpy() for v in model.trainable_variables}


NOISE = {"torch": TorchNoise(), "tensorflow": TensorflowNoise()}
