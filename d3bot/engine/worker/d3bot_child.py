"""One forked process: executes the script's text and calls one of its functions.

What comes back lies in the job's folder: `rank-N.npz` (or `reference.npz`, `noise-I.npz`), `rank-N.json` with the
outcome, `rank-N.out` with everything that was printed.  Nothing is pickled.
"""

import faulthandler
import inspect
import json
import os
import resource
import signal
import sys
import time
import traceback
import types

import numpy as np
from d3bot_noise import NOISE


def run_child(job, rank):
    """Run the job's function and end the process; never returns."""
    folder = job["folder"]
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(os.path.join(folder, f"rank-{rank}.out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False, errors="backslashreplace")
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")
    faulthandler.enable(all_threads=True)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (job["file"], job["file"]))
    os.chdir(folder)
    code = 1
    try:
        script = load(job["script"])
        if job["call"] == "reference":
            reference(script, job, folder)
        else:
            store(os.path.join(folder, f"rank-{rank}.npz"), distributed(script, rank, folder))
        outcome, code = {"ok": True}, 0
    except BaseException as error:
        outcome = describe(error, job["packages"], job["script"])
    outcome["at"] = time.time()
    path = os.path.join(folder, f"rank-{rank}.json")
    with open(path + ".part", "w") as file:
        json.dump(outcome, file)
    os.replace(path + ".part", path)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def load(path):
    """Execute the script's text as a module that is not `__main__`, and return it."""
    with open(path) as file:
        text = file.read()
    module = types.ModuleType("trial")
    module.__file__ = path
    sys.modules["trial"] = module
    exec(compile(text, path, "exec"), module.__dict__)
    return module


def distributed(script, rank, folder):
    """Call `distributed` with what its signature asks for."""
    given = {"rank": rank, "store": os.path.join(folder, "store")}
    wanted = inspect.signature(script.distributed).parameters
    return script.distributed(**{name: given[name] for name in wanted})


def reference(script, job, folder):
    """Run the reference, then again with the sums reordered and with parameters and inputs moved by one ulp."""
    store(os.path.join(folder, "reference.npz"), script.reference())
    build, data = script.build, script.data
    noise = NOISE[job["framework"]]
    for i, how in enumerate(job["noise"]):
        script.build, script.data = build, data
        if how == "move":
            script.build = noise.moved_build(build, seed=i)
            script.data = noise.moved_data(data, seed=i)
        else:
            script.data = noise.reordered_data(data, parts=job["parts"], steps=script.STEPS, seed=i)
        store(os.path.join(folder, f"noise-{i}.npz"), script.reference())


def store(path, arrays):
    """Save named arrays; object arrays are refused, nothing is pickled."""
    plain = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in plain.items():
        if array.dtype == object:
            raise TypeError(f"{name} is not a numeric array")
    with open(path + ".part", "wb") as file:
        np.savez(file, **plain)
    os.replace(path + ".part", path)


def describe(error, packages, script):
    """Return the exception as plain data: type, message, text, and the frames that lie inside the library."""
    frames = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        path = frame.f_code.co_filename
        for package in packages:
            marker = f"{os.sep}{package}{os.sep}"
            if marker in path:
                module = path[path.rindex(marker) + 1 :].removesuffix(".py").replace(os.sep, ".")
                frames.append(f"{module}:{frame.f_code.co_name}")
                break
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return {
        "ok": False,
        "type": type(error).__name__,
        "message": str(error)[:4000],
        "frames": frames[-12:],
        "text": text[-12000:],
    }
