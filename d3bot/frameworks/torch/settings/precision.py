"""Lower precision inside `fully_shard`: MixedPrecisionPolicy, and what the reference makes of it."""

from collections.abc import Mapping
from typing import Any

from d3bot.frameworks.base import EPSILON, Option
from d3bot.frameworks.torch.settings.common import keeps_local_buffers, world_of
from d3bot.spec import Case, Setting

COMPUTE = Option(
    "compute",
    "param_dtype: type of the gathered parameters and of the forward",
    "none",
    ("none", "bfloat16", "float16"),
)
REDUCE = Option(
    "reduce",
    "reduce_dtype: type in which gradients are reduced; without it that of compute",
    "none",
    ("none", "float32", "bfloat16", "float16"),
)
OPTIONS = (COMPUTE, REDUCE)
SOURCE = (
    '"param_dtype: This specifies the dtype for the unsharded parameter and hence the dtype for forward/backward '
    'computation"; "reduce_dtype: This specifies the dtype for gradient reduction"; "If this is None but param_dtype '
    'is not None, then the reduction uses the compute dtype"; "The optimizer step uses the sharded parameter in the '
    'original dtype" (MixedPrecisionPolicy, 2.13)'
)

BREAKS = ("Lower precision with batch norm, with micro-batches, or on more than 2 ranks with Adam.",)


def rounding(case: Case, setting: Setting) -> float:
    """Return the largest rounding unit among the types that gradients pass through; 0 if they keep their own."""
    used = {str(setting.get(name, "none")) for name in ("compute", "reduce")} - {"none"}
    largest = max((EPSILON[name] for name in used), default=0.0)
    return largest if largest > EPSILON[case.dtype] else 0.0


def obstacle(case: Case, setting: Setting) -> str | None:
    """Return why lower precision cannot be emulated for this trial, or None."""
    given = any(setting.get(name, "none") != "none" for name in ("compute", "reduce"))
    if given and (case.casts or case.mixed != "none"):
        return "which of two lower types counts, the case's own or the policy's, is not documented"
    if not rounding(case, setting):
        return None
    if setting.get("compute", "none") != "none" and keeps_local_buffers(case):
        return "which type batch norm computes in beside parameters of a lower one is not documented"
    if case.accumulate > 1:
        return "in which type the gradients of micro-batches are added up is not documented for every way to do it"
    if world_of(setting) > 2 and case.optimizer.name != "sgd":
        return "the order of a sum of more than 2 is free, and Adam's step makes a whole step of one rounding near zero"
    return None


def context(case: Case, setting: Setting) -> Mapping[str, Any]:
    """Return the policies, and the types that the reference casts to."""
    compute, reduce = (str(setting.get(name, "none")) for name in ("compute", "reduce"))
    named = {"param_dtype": compute, "reduce_dtype": reduce}
    given = ", ".join(f"{name}=torch.{dtype}" for name, dtype in named.items() if dtype != "none")
    low = compute if compute != "none" else ""
    return {
        "compute": low,
        "wire": reduce if reduce != "none" else low,
        "low_inputs": ", ".join(
            f"{item.name}.to(torch.{low})" if not item.vocab else item.name for item in case.inputs
        ),
        "policy": f"MixedPrecisionPolicy({given})" if given else "",
        "root_policy": f"MixedPrecisionPolicy({given}, output_dtype=torch.{case.dtype})" if low else "",
    } | ({"predict": False} if low else {})
