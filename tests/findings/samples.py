"""Small valid nouns for tests that judge, group, file and report failures."""

from typing import Any

from d3bot.findings import Symptom, failure_key
from d3bot.spec import Attempt, Build, Case, Finding, First, Input, Layer, Run, Setting, Verdict, trial_id

BUILD = Build(spec="torch==2.13.0", framework="torch", name="torch", version="2.13.0", python="/usr/bin/python3")
SETTING = Setting.parse("fsdp2(world=2, shard_dim=1)")
FIRST = First(step=0, role="grad", tensor="fc.weight")
KEY = failure_key("torch", SETTING, Symptom("diverged", "grad", "weight", "permuted"))


def case(layers: int = 1, steps: int = 2) -> Case:
    chain = [
        Layer(name=f"fc{i}", op="linear", inputs=(f"fc{i - 1}" if i else "x",), options={"units": 4})
        for i in range(layers)
    ]
    return Case(framework="torch", inputs=(Input(name="x", shape=(6,)),), layers=tuple(chain), steps=steps)


def verdict(kind: str = "pass", case_id: str = "c0", setting: str = str(SETTING), **facts: Any) -> Verdict:
    return Verdict(
        trial=trial_id("torch", case_id, setting),
        framework="torch",
        build=BUILD.id,
        case=case_id,
        setting=setting,
        world=2,
        kind=kind,  # type: ignore[arg-type]
        reason=facts.pop("reason", f"it is {kind}"),
        **facts,
    )


def finding(key: str = KEY, **facts: Any) -> Finding:
    seen = facts.pop("verdict", None) or verdict(
        "diverged", case().id, key=key, first=FIRST, error=0.227, bound=0.0, diagnosis="permuted: residual 0"
    )
    script = Attempt(how="script", build=BUILD.label, failed=True, outcome="exit 1")
    defaults: dict[str, Any] = {"title": "weight gradients differ", "verified": True, "attempts": (script,)}
    return Finding(key=key, verdict=seen, build=BUILD, case=case(), setting=SETTING, **(defaults | facts))


def run(name: str = "r1", **facts: Any) -> Run:
    defaults: dict[str, Any] = {"started": "2026-11-30T02:00:00+00:00", "complete": True, "builds": (BUILD,)}
    return Run(run=name, seed=1, **(defaults | facts))
