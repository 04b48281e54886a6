"""The zygote: imports the library once, runs no operation, and forks a fresh process for every rank.

Runs in the build's interpreter (Python >= 3.10) with the standard library, numpy and the library alone.  It talks to
the driver in JSON lines over an inherited socket.  One job at a time: it forks the processes, watches their exits,
memory, output and the deadline, kills what must be killed with all its descendants, and reports.
"""

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time

from d3bot_child import run_child

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE = 3.0  # seconds that the peers of a failed rank get to fail by themselves, so that their errors are seen
POLL_MS = 20
_libc = ctypes.CDLL(None)


def main():
    control = socket.socket(fileno=int(sys.argv[1]))
    preload = sys.argv[2].split(",")
    sys.path.pop(0)  # this folder: a script must not find the worker's modules by accident
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a rank leaves behind becomes our child, so we can kill it
    stream = control.makefile("rw")
    missing = []
    for name in preload:
        required = not name.startswith("?")
        try:
            importlib.import_module(name.lstrip("?"))
        except BaseException as error:  # an import may raise anything, SystemExit included
            if required:
                say(stream, {"ready": False, "error": f"{type(error).__name__}: {error}"})
                return
            missing.append(name.lstrip("?"))
    gc.collect()
    gc.freeze()  # the children share these pages instead of copying them at their first collection
    say(stream, {"ready": True, "pid": os.getpid(), "missing": missing})
    for line in stream:
        say(stream, run_job(json.loads(line), control))
        reap_strays()


def say(stream, message):
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def run_job(job, control):
    """Fork the job's processes, watch them to their end, and return how each of them ended."""
    began = time.monotonic()
    living, ended, why = {}, {}, ""
    for rank in range(job["processes"]):
        pid = os.fork()
        if pid == 0:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            control.close()
            run_child(job, rank)
        living[pid] = rank
    last = began + job["deadline"]
    checked = 0.0
    while living:
        now = time.monotonic()
        for pid in list(living):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                rank = living.pop(pid)
                ended[rank] = {"code": os.waitstatus_to_exitcode(status), "seconds": now - began, "why": ""}
                if status and not why:
                    last = min(last, now + GRACE)
        if not living:
            break
        if now - checked > 0.1:
            checked = now
            why = why or excess(job, living)
        if why or now > last:
            why = why or ("peer" if any(item["code"] for item in ended.values()) else "deadline")
            stop(living, ended, why, began)
            break
        readable, _, _ = select.select([control], [], [], POLL_MS / 1000 if now - began > 0.2 else 0.002)
        if readable and not control.recv(1, socket.MSG_PEEK):
            stop(living, ended, "driver gone", began)  # the driver was killed: leave nothing behind
            os._exit(0)
    ranks = [ended[rank] for rank in range(job["processes"])]
    return {"job": job["job"], "ranks": ranks, "seconds": time.monotonic() - began}


def excess(job, living):
    """Return "memory" or "output" if a rank is over its limit, else an empty string."""
    for pid, rank in living.items():
        try:
            with open(f"/proc/{pid}/statm") as file:
                resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
        if resident > job["memory"]:
            return "memory"
        try:
            if os.path.getsize(os.path.join(job["folder"], f"rank-{rank}.out")) > job["output"]:
                return "output"
        except OSError:
            continue
    return ""


def stop(living, ended, why, began):
    """Ask every living rank for its stacks, then kill it with its process group, and wait for its end."""
    if why == "deadline":
        for pid in living:
            signal_quietly(pid, signal.SIGUSR1)
        time.sleep(0.3)
    for pid, rank in living.items():
        group_kill(pid)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        ended[rank] = {"code": code, "seconds": time.monotonic() - began, "why": why}
    living.clear()


def reap_strays():
    """Kill and reap every process that a rank left behind, however it detached itself."""
    path = f"/proc/self/task/{os.getpid()}/children"
    while True:
        with open(path) as file:
            children = [int(pid) for pid in file.read().split()]
        if not children:
            return
        for pid in children:
            group_kill(pid)
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                continue


def group_kill(pid):
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass
    signal_quietly(pid, signal.SIGKILL)


def signal_quietly(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass


if __name__ == "__main__":
    main()
