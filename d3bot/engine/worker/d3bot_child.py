"""One forked process: executes the script's text and calls one of its functions.

What comes back lies in the job's folder: `rank-N.npz` (or `reference.npz`, `noise-I.npz`,
`share-I.npz`, `without-I.npz`, `start.npz`), `rank-N.json` with the
outcome, `rank-N.out` with everything that was printed, and of a traced run
`trace-reference.*`, `trace-noise-I.*` or `trace-N.*` (see `d3bot_trace`).  Nothing is pickled.
"""

import contextlib
import faulthandler
import inspect
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import types

import numpy as np
from d3bot_noise import NOISE
from d3bot_trace import traced


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
    os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = folder  # nothing stays for the next trial to find
    code = 1
    try:
        script = load(job["script"])
        if job["call"] == "reference":
            reference(script, job, folder)
        else:
            with watched(script, job, str(rank)):
                seen = distributed(script, rank, job)
            store(os.path.join(folder, f"rank-{rank}.npz"), seen)
        outcome, code = {"ok": True}, 0
    except BaseException as error:
        outcome = describe(error, job["packages"])
    outcome["at"] = time.time()
    path = os.path.join(folder, f"rank-{rank}.json")
    with open(path + ".part", "w") as file:
        json.dump(outcome, file)
    os.replace(path + ".part", path)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # the script may have closed or replaced it
            pass
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


def watched(script, job, name):
    """Return a context in which the script's layers and collectives are recorded, if that is asked for."""
    return traced(script, job["framework"], job["folder"], name) if job["trace"] else contextlib.nullcontext()


def distributed(script, rank, job):
    """Call `distributed` with what its signature asks for.

    `store` is a path for the ranks to meet at, `addresses` a free `host:port` for each of them.
    """
    given = {"rank": rank, "store": os.path.join(job["folder"], "store"), "addresses": job["addresses"]}
    wanted = inspect.signature(script.distributed).parameters
    return script.distributed(**{name: given[name] for name in wanted})


def reference(script, job, folder):
    """Run the reference, then again with the sums reordered and with parameters and inputs moved by one ulp.

    Then, of what is asked for, on single parts of the batch, and what the parameters are before the first step.
    """
    with watched(script, job, "reference"):
        seen = script.reference()
    store(os.path.join(folder, "reference.npz"), seen)
    build, data = script.build, script.data
    noise = NOISE[job["framework"]]
    for i, how in enumerate(job["noise"]):
        script.build, script.data = build, data
        if how == "move":
            script.build = noise.moved_build(build, seed=i)
            script.data = noise.moved_data(data, seed=i)
        else:
            script.data = noise.reordered_data(data, parts=job["parts"], steps=job["steps"], seed=i)
        with watched(script, job, f"noise-{i}"):
            seen = script.reference()
        store(os.path.join(folder, f"noise-{i}.npz"), seen)
    script.build = build
    pieces = job["pieces"]
    some = {f"share-{i}": [i] for i in job["shares"]}
    some |= {f"without-{i}": [piece for piece in range(pieces) if piece != i] for i in job["without"]}
    for name, kept in some.items():
        script.data = noise.shared_data(data, kept, pieces, parts=job["parts"], steps=job["steps"])
        try:
            share = script.reference()
        except Exception:  # a part of the batch may be too small for what the case needs, as batch norm does
            continue
        store(os.path.join(folder, f"{name}.npz"), share)
    if job["start"]:
        store(os.path.join(folder, "start.npz"), noise.parameters(build()))


def store(path, arrays):
    """Save named arrays of real numbers; TypeError for anything else, so that nothing is pickled.

    A script that shows how the distributed run ends looks at nothing, and so returns None.
    """
    plain = {name: np.asarray(array) for name, array in (arrays or {}).items()}
    for name, array in plain.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name} is not an array of real numbers but of {array.dtype}")
    try:
        with open(path + ".part", "wb") as file:
            np.savez(file, **plain)
    except OSError:
        os.unlink(path + ".part")  # on a full disk, leave room for the outcome
        raise
    os.replace(path + ".part", path)


def describe(error, packages):
    """Return the exception as plain data: type, message, text, and the frames that lie inside the library."""
    # Where a package lies, not just its name: the folder of an environment may be called `torch` too.
    files = [getattr(sys.modules.get(package), "__file__", None) for package in packages]
    folders = [os.path.dirname(file) for file in files if file]
    frames = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        path = frame.f_code.co_filename
        for folder in folders:
            if path.startswith(folder + os.sep):
                module = os.path.relpath(path, os.path.dirname(folder)).removesuffix(".py").replace(os.sep, ".")
                frames.append(f"{module}:{frame.f_code.co_name}")
                break
    try:
        message = str(error)
    except Exception as second:  # an exception that cannot print itself is still an exception
        message = f"(its text raised {type(second).__name__})"
    if message.startswith("in user code:"):  # AutoGraph puts the frames before the message
        message = message.rpartition(f"\n    {type(error).__name__}: ")[2]
    trace = error.__traceback__  # begins in the script, as it does where the script is run by itself
    while trace and trace.tb_next and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    return {
        "ok": False,
        "type": type(error).__name__,
        "message": printable(message[:4000]),
        "frames": frames[-12:],
        "text": printable(text[-12000:]),
    }


def printable(text):
    """Return the text with lone surrogates written out: no file could hold them."""
    return text.encode("utf-8", "backslashreplace").decode()
