"""Say what library an interpreter imports and on what machine: `python -c "$(cat probe.py)" OUT.json [FRAMEWORK]`.

Runs in the interpreter of a *build*, Python 3.10 or newer, with nothing but the standard library and that build; the
driver sends it as text and imports only `host` from it.  Writes one JSON object to OUT.json.
"""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys

NAMES = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow-cpu", "tensorflow", "tf-nightly-cpu", "tf-nightly", "tensorflow-rocm"),
}
"""Distributions that provide each framework's import package."""


def host() -> dict[str, str]:
    """Return the machine's own part of the environment class: os, machine, cpu, and GPUs with their driver."""
    facts = {"os": _system(), "machine": platform.machine(), "cpu": _cpu()}
    listing, _ = nvidia("name,driver_version")
    if listing:
        facts["gpus"] = ", ".join(line.split(",")[0].strip() for line in listing)
        facts["driver"] = listing[0].split(",")[-1].strip()
    return facts


def nvidia(query: str) -> tuple[list[str], str]:
    """Return nvidia-smi's answer, a line for each GPU, and why it failed; both empty where there is no driver."""
    program = shutil.which("nvidia-smi")
    if not program:
        return [], ""
    command = [program, f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], " ".join(str(error).split())
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return ([], (lines or ["it failed"])[0]) if done.returncode else (lines, "")


def frameworks() -> list[str]:
    """Return which frameworks this interpreter could import, found without importing them."""
    return [name for name in NAMES if importlib.util.find_spec(name) is not None]


def library(framework: str) -> dict[str, object]:
    """Import the framework and return its name, version, git_version, file, companions, and what devices it sees."""
    module = importlib.import_module(framework)
    facts: dict[str, object] = {"framework": framework, "name": _distribution(framework), "version": module.__version__}
    files = {framework: str(module.__file__)}
    if framework == "torch":
        facts["commit"] = str(getattr(module.version, "git_version", None) or "")
        cuda = str(module.version.cuda or "")
        device = module.cuda.get_device_name(0) if cuda and module.cuda.is_available() else ""
        count = module.cuda.device_count() if device else 0
        nccl = module.cuda.nccl.version() if device and module.distributed.is_nccl_available() else ()
        facts["nccl"] = ".".join(map(str, nccl))
    else:
        commit = str(module.version.GIT_VERSION)
        facts["commit"] = "" if commit == "unknown" else commit
        files["keras"] = str(importlib.import_module("keras").__file__)
        cuda = str(module.sysconfig.get_build_info().get("cuda_version", ""))
        gpus = module.config.list_physical_devices("GPU") if cuda else []
        details = [module.config.experimental.get_device_details(gpu) for gpu in gpus]
        device = str(details[0].get("device_name", "GPU")) if details else ""
        count = len(gpus)
    facts["cuda"] = cuda
    facts["device"] = f"{count} x {device}" if device else ""
    facts["files"] = files
    packages = {"numpy": _version("numpy"), "keras": _version("keras") or _version("keras-nightly")}
    packages |= {name: _version(name) for name in ("torchrec", "fbgemm-gpu", "fbgemm-gpu-cpu", "tf-keras")}
    facts["packages"] = {name: version for name, version in packages.items() if version}
    return facts


def _distribution(framework: str) -> str:
    return next((name for name in NAMES[framework] if _version(name)), framework)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _system() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return platform.system()
    return f"{platform.system()} {release.get('ID', '')} {release.get('VERSION_ID', '')}".strip()


def _cpu() -> str:
    """Return the CPU model with a hash of its flags: kernels are chosen by flags, which a virtual machine may mask."""
    fields: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                key, _, value = line.partition(":")
                fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    model = fields.get("model name") or platform.processor() or platform.machine()
    flags = " ".join(sorted((fields.get("flags") or fields.get("Features") or "").split()))
    return f"{model} (flags {hashlib.sha256(flags.encode()).hexdigest()[:8]})"


def main(out: str, framework: str = "") -> None:
    """Write the facts to `out`: `found` always, then either `imported` or `error` with the exception's last line."""
    facts: dict[str, object] = {"python": platform.python_version(), "found": frameworks(), "host": host()}
    wanted = framework or (frameworks()[0] if len(frameworks()) == 1 else "")
    if wanted in frameworks():
        try:
            facts["imported"] = library(wanted)
        except BaseException as error:  # a broken build may raise anything, SystemExit too
            facts["error"] = f"{type(error).__name__}: {' '.join(str(error).split())}"
    with open(out, "w") as file:
        json.dump(facts, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    # A library's threads or a GPU context may hang the interpreter's shutdown; everything is written.
    os._exit(0)
