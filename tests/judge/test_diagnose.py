"""What a wrong number means: each pattern is built numerically, and is told only where the numbers bear it out."""

from collections.abc import Sequence

import numpy as np
import pytest

from d3bot.judge.compare import compare
from d3bot.judge.diagnose import Clues, diagnose
from d3bot.judge.evidence import Diagnosis
from d3bot.spec import Arrays

RNG = np.random.default_rng(0)
NAME, BEFORE = "step 1 grad fc.weight", "step 0 grad fc.weight"
GOOD = RNG.normal(size=(4, 3))
OLD = RNG.normal(size=(4, 3))
OTHER = RNG.normal(size=(4, 3))


def found(*held: np.ndarray | None, world: int = 2, parts: int = 2, want: np.ndarray = GOOD) -> Diagnosis:
    """Return the diagnosis of ranks that hold these gradients; None: the rank holds none."""
    reference: Arrays = {BEFORE: OLD, NAME: want}
    ranks = [{BEFORE: OLD} | ({} if array is None else {NAME: array}) for array in held]
    wrong = [item for item in compare(reference, ranks, {}, lambda name: True) if item.wrong]
    assert [item.name for item in wrong] == [NAME]
    return diagnose(wrong[0], reference, ranks, world, parts)


def replaced(index: object, by: object, of: np.ndarray = GOOD) -> np.ndarray:
    copy = of.copy()
    copy[index] = by  # type: ignore[index]
    return copy


def both(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return array, array


TABLE: list[tuple[str, Diagnosis, str, str]] = [
    ("zero", found(*both(np.zeros((4, 3)))), "zero", "all zero on every rank"),
    ("zero on one rank only", found(np.zeros((4, 3)), GOOD), "ranks-differ", "only rank 0 is wrong"),
    ("each rank its own", found(GOOD + OTHER, GOOD - OTHER), "not-reduced", "each rank holds its own; their mean is"),
    ("one rank is off", found(GOOD, GOOD + 1e-9), "ranks-differ", "differ by up to 1e-09; only rank 1 is wrong"),
    ("a rank holds none", found(None, GOOD, GOOD + 1e-9), "ranks-differ", "only rank 2 is wrong"),
    ("two of three", found(GOOD + OTHER, GOOD, GOOD + 2 * OTHER), "ranks-differ", "ranks 0, 2 are wrong"),
    ("all, each in its way", found(GOOD + OTHER, GOOD + OLD), "ranks-differ", "every rank is wrong"),
    ("summed", found(*both(GOOD * 2)), "scaled", "2 x the expected value, that is the world size"),
    ("averaged twice", found(*both(GOOD / 2)), "scaled", "0.5 x the expected value, that is 1 / world size"),
    ("summed twice", found(*both(GOOD * 4)), "scaled", "that is the world size squared"),
    ("of three ranks", found(*both(GOOD * 3), world=3, parts=4), "scaled", "that is the world size"),
    ("micro-batches", found(*both(GOOD * 4), world=3, parts=4), "scaled", "that is the number of parts"),
    ("no known factor", found(*both(GOOD * 1.7)), "scaled", "1.7 x the expected value (residual"),
    ("a sign", found(*both(-GOOD)), "scaled", "-1 x the expected value"),
    ("a little", found(*both(GOOD * (1 + 1e-9))), "scaled", "(1 +1e-09) x the expected value"),
    ("shifted", found(*both(np.roll(GOOD, 1, axis=0))), "permuted", "the expected numbers in other places"),
    ("transposed in storage", found(*both(GOOD.T.reshape(4, 3))), "permuted", "the expected numbers in other places"),
    ("stale", found(*both(OLD)), "stale", "equals the previous step's"),
    ("one element", found(*both(replaced((2, 1), 5.0))), "part", "1 of 12 elements are wrong, in row 2 of 4"),
    ("last rows", found(*both(replaced(slice(2, 4), 0.0))), "part", "6 of 12 elements are wrong, in rows 2, 3 of 4"),
    ("one column", found(*both(replaced((slice(None), 0), 0.0))), "part", "4 of 12 elements are wrong"),
    ("noise", found(*both(GOOD + OTHER)), "other", "no known pattern; 12 of 12 elements are wrong"),
    (
        "most of it",
        found(*both(replaced(slice(0, 3), OTHER[:3]))),
        "other",
        "no known pattern; 9 of 12 elements are wrong",
    ),
    ("a scalar", found(*both(np.array(2.0)), want=np.array(1.5)), "other", "1 of 1 elements are wrong"),
    ("missing", found(None, None), "missing", "no rank has it"),
    ("shape", found(*both(GOOD[:2])), "shape", "shape (2, 3) instead of (4, 3)"),
    ("dtype", found(GOOD, GOOD.astype(np.float32)), "dtype", "type float32, float64 instead of float64"),
    ("NaN", found(GOOD, replaced((0, 0), np.nan)), "nonfinite", "NaN or infinity where one process has finite"),
]


@pytest.mark.parametrize(("diagnosis", "kind", "text"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_pattern(diagnosis: Diagnosis, kind: str, text: str) -> None:
    assert diagnosis.kind == kind
    assert text in diagnosis.text


SHARES = tuple(np.random.default_rng(7).standard_normal((3, 4, 3)))
LOSSES = tuple(np.random.default_rng(8).random(3) + 1)
START = np.random.default_rng(9).standard_normal((4, 3))


def of_shares(held: np.ndarray, shares: tuple[np.ndarray, ...] = SHARES, name: str = NAME, world: int = 3) -> Diagnosis:
    """The diagnosis of an array whose expected value is the mean of the ranks' own, as one process returned it."""
    reference: Arrays = {name: np.asarray(np.mean(shares, axis=0))}
    (wrong,) = compare(reference, [{name: held}], {}, lambda _: True)
    clues = Clues(shares=tuple({name: np.asarray(share)} for share in shares))
    return diagnose(wrong, reference, [{name: held}], world, world, clues)


def of_update(
    held: np.ndarray,
    want: np.ndarray,
    name: str = "param w",
    before: str = "",
    own: Sequence[Arrays] = (),
) -> str:
    """The diagnosis of a parameter that was START before the step."""
    reference: Arrays = {"step 0 loss 0": np.ones(1), name: want} | ({before: START} if before else {})
    (wrong,) = [item for item in compare(reference, [{**reference, name: held}], {}, lambda _: True) if item.wrong]
    clues = Clues(start={} if before else {"param w": START}, shares=tuple(own))
    told = diagnose(wrong, reference, [{name: held}], 2, 2, clues)
    return f"{told.kind}: {told.text}"


A, B, C = SHARES
SHARE_TABLE: list[tuple[str, Diagnosis, str, str]] = [
    ("one rank's own", of_shares(B), "share", "is rank 1's own (residual"),
    ("one rank's, divided", of_shares(B / 3), "share", "is rank 1's own / 3"),
    ("sum without one", of_shares(A + C), "share", "is a sum: the share of rank 1 is missing"),
    ("mean without one", of_shares((A + C) / 2), "share", "is a mean over those: the share of rank 1 is missing"),
    ("divided by all", of_shares((A + B) / 3), "share", "is a mean over all: the share of rank 2 is missing"),
    ("one counted twice", of_shares((A + 2 * B + C) / 3), "share", "with weights 0.3333, 0.6667, 0.3333"),
    ("the sum", of_shares(A + B + C), "scaled", "3 x the expected value, that is the world size"),
    ("micro-batches", of_shares(B, world=2), "share", "is part 1's own"),
    ("a loss summed", of_shares(np.sum(LOSSES), LOSSES), "ratio", "3 x the expected value, that is the world size"),
    ("a third in float32", of_shares(np.mean(LOSSES) * 3 * float(np.float32(1 / 3)), LOSSES), "ratio", "to float32"),
    ("a loss of one rank", of_shares(LOSSES[2], LOSSES), "share", "is rank 2's own"),
    (
        "a loss without one",
        of_shares(LOSSES[0] + LOSSES[2], LOSSES),
        "share",
        "is a sum: the share of rank 1 is missing",
    ),
    ("a loss that is nearly so", of_shares((LOSSES[0] + LOSSES[2]) * (1 + 1e-9), LOSSES), "other", "no known pattern"),
    ("noise", of_shares(OTHER), "other", "no known pattern"),
]


@pytest.mark.parametrize(
    ("diagnosis", "kind", "text"), [row[1:] for row in SHARE_TABLE], ids=[r[0] for r in SHARE_TABLE]
)
def test_share(diagnosis: Diagnosis, kind: str, text: str) -> None:
    assert diagnosis.kind == kind
    assert text in diagnosis.text


WANT = START - 0.1 * GOOD
OWN = [{"param w": START + array} for array in SHARES]
UPDATE_TABLE = [
    ("not updated", of_update(START, WANT), "update: it was not updated: equals its value before the step"),
    (
        "half a step",
        of_update(START - 0.05 * GOOD, WANT),
        "update: it moved by 0.5 x the expected update, that is 1",
    ),
    (
        "of a later step",
        of_update(START - 0.2 * GOOD, WANT, "step 1 param w", "step 0 param w"),
        "update: it moved by 2 x",
    ),
    ("no decay", of_update(WANT + 0.01 * START, WANT), "decay: off by 0.01 x the parameter itself"),
    (
        "without one rank",
        of_update(START + (A + C) / 3, START + (A + B + C) / 3, own=OWN),
        "update: its update is a mean",
    ),
]


@pytest.mark.parametrize(("found", "text"), [row[1:] for row in UPDATE_TABLE], ids=[row[0] for row in UPDATE_TABLE])
def test_update_of_a_parameter(found: str, text: str) -> None:
    assert text in found


SHARD_TABLE = [
    ("the last shard", replaced(slice(2, 4), 0.0), "in the shard of rank 1 along dimension 0, the last one: all zero"),
    (
        "the first shard",
        replaced(slice(0, 2), 2 * GOOD[:2]),
        "in the shard of rank 0 along dimension 0: 2 x the",
    ),
    ("a column", replaced((slice(None), 2), 0.0), "in the shard of rank 1 along dimension 1, the short one: all zero"),
    ("across shards", replaced(slice(1, 3), 0.0), "in rows 1, 2 of 4"),
]


@pytest.mark.parametrize(("held", "text"), [row[1:] for row in SHARD_TABLE], ids=[row[0] for row in SHARD_TABLE])
def test_shard(held: np.ndarray, text: str) -> None:
    assert found(*both(held)).text.endswith(text) or text in found(*both(held)).text


@pytest.mark.parametrize(
    ("name", "held"),
    [("step 0 loss 1", 1.5), ("buffer n.running_mean 1", 1.5), ("predict 1", 1.5)],
)
def test_the_array_of_another_rank(name: str, held: float) -> None:
    reference: Arrays = {name[:-1] + "0": np.full(2, held), name: np.array([2.5, 7.0])}
    seen = {**reference, name: np.full(2, held)}
    (wrong,) = [item for item in compare(reference, [seen], {}, lambda _: True) if item.wrong]
    assert diagnose(wrong, reference, [seen], 2, 2).text.startswith(f"equals {name[:-1]}0")


def test_replicas_that_each_keep_their_own_statistics() -> None:
    names = [f"buffer n/moving_mean {i}" for i in range(3)]
    reference: Arrays = {name: np.mean(SHARES, axis=0) for name in names}
    seen: Arrays = dict(zip(names, SHARES, strict=True))
    first = compare(reference, [seen], {}, lambda _: True)[0]
    told = diagnose(first, reference, [seen], 3, 3)
    assert (told.kind, told.text[:45]) == ("copies", "each replica's copy is its own; their mean is")


def test_a_counter_of_forward_passes_is_read() -> None:
    reference: Arrays = {"param w": GOOD, "buffer n.mean": GOOD, "buffer n.num_batches_tracked": np.array(2)}
    seen = reference | {"buffer n.mean": OLD, "buffer n.num_batches_tracked": np.array(3)}
    differences = compare(reference, [seen], {}, lambda _: True)
    told = diagnose(differences[1], reference, [seen], 2, 2, Clues(), differences).text
    assert told.endswith("only buffers are wrong: n.num_batches_tracked counts 3 forward passes instead of 2")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"param a.weight"}, "; only tied tensors are wrong"),
        ({"param b.bias"}, "; only one-element tensors are wrong"),
        ({"param c.weight"}, "; only this one of 4 tensors is wrong"),
        ({"buffer m"}, "; only buffers are wrong"),
        ({"param b.weight", "param c.weight"}, "; "),
    ],
)
def test_what_sets_the_wrong_ones_apart(wrong: set[str], text: str) -> None:
    names = ["param a.weight", "param b.bias", "param b.weight", "param c.weight", "buffer m"]
    reference: Arrays = {name: np.arange(1.0, 2 if "bias" in name else 5) for name in names}
    seen = {name: array + (np.arange(len(array)) ** 2 + 1 if name in wrong else 0) for name, array in reference.items()}
    differences = compare(reference, [seen], {}, lambda _: True)
    first = next(item for item in differences if item.wrong)
    told = diagnose(first, reference, [seen], 2, 2, Clues(groups={"tied": frozenset("a")}), differences).text
    assert told.endswith(text) if text != "; " else "; only" not in told


def test_a_rank_that_differs_is_looked_at_by_itself() -> None:
    assert found(GOOD, OLD).text.endswith("only rank 1 is wrong; rank 1: equals the previous step's (residual 0.0e+00)")


def test_what_one_small_tensor_cannot_tell_all_wrong_ones_do_together() -> None:
    names = [f"step 0 grad fc{i}.bias" for i in range(4)]
    shares: list[Arrays] = [{name: share[i, :2] for i, name in enumerate(names)} for share in SHARES]
    reference: Arrays = {name: np.asarray(np.mean([share[name] for share in shares], axis=0)) for name in names}
    weights = (0.5, 1.5, 1.0)
    seen: Arrays = {
        name: np.sum([by * share[name] for by, share in zip(weights, shares, strict=True)], axis=0) for name in names
    }
    differences = compare(reference, [seen], {}, lambda _: True)
    clues = Clues(shares=tuple(shares))
    alone = diagnose(differences[0], reference, [seen], 3, 3, clues, differences[:1])
    told = diagnose(differences[0], reference, [seen], 3, 3, clues, differences)
    assert (alone.kind, told.kind) == ("other", "share")
    assert told.text.startswith("all 4 that are wrong there: is a sum over the ranks' own with weights 0.5, 1.5, 1 ")


@pytest.mark.parametrize(
    ("off", "text"),
    [
        (0.0, "as one process has it without the rows of rank 1 (residual 0.0e+00)"),
        (1e-6, "as one process has it without the rows of rank 1 (residual 1.0e-06)"),
        (0.1, "no known pattern"),
    ],
)
def test_rows_of_a_rank_left_out_of_what_is_no_sum(off: float, text: str) -> None:
    reference: Arrays = {"param w": START}
    held = START + np.sign(OTHER)
    clues = Clues(without=({"param w": OLD}, {"param w": held + off}, None))
    (wrong,) = compare(reference, [{"param w": held}], {}, lambda _: True)
    assert diagnose(wrong, reference, [{"param w": held}], 3, 3, clues).text.startswith(text)


HALVES = GOOD.astype(np.float16).astype(np.float64)
ROUNDED = [
    ("float32 in float64", GOOD, GOOD * (1 + 2e-8 * np.sign(OTHER)), "rounded", "within one rounding of float32"),
    ("more than float32", GOOD, GOOD * (1 + 1e-6 * np.sign(OTHER)), "other", "no known pattern"),
    ("float16 numbers", GOOD, HALVES, "rounded", "each number is one of float16"),
    ("no float16 numbers", HALVES, GOOD, "rounded", "one process's numbers are float16's; these are not"),
]


@pytest.mark.parametrize(
    ("want", "held", "kind", "text"), [row[1:] for row in ROUNDED], ids=[row[0] for row in ROUNDED]
)
def test_a_lower_type_on_the_way_is_told(want: np.ndarray, held: np.ndarray, kind: str, text: str) -> None:
    told = found(*both(held), want=want)
    assert told.kind == kind
    assert text in told.text


def test_unexpected() -> None:
    ranks = [{NAME: GOOD}]
    (wrong,) = compare({}, ranks, {}, lambda name: True)
    assert diagnose(wrong, {}, ranks, 2, 2).kind == "unexpected"


@pytest.mark.parametrize(
    "array",
    [
        GOOD * 2 + 1e-3 * OTHER,
        np.roll(GOOD, 1, axis=0) + 1e-3 * OTHER,
        OLD + 1e-3 * OTHER,
        1e-3 * OTHER,
    ],
    ids=["nearly doubled", "nearly shifted", "nearly stale", "nearly zero"],
)
def test_a_pattern_that_is_only_near_is_not_told(array: np.ndarray) -> None:
    assert found(array, array).kind == "other"


def test_ranks_that_differ_around_another_mean_are_not_called_unreduced() -> None:
    assert found(GOOD + OTHER, GOOD - 1.001 * OTHER).kind == "ranks-differ"
