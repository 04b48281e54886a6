"""The zygote: imports the library once, runs no operation, and forks a fresh process for every rank.

Runs in the build's interpreter (Python >= 3.10) with the standard library, numpy and the library alone.  It talks to
the driver in JSON lines over an inherited socket.  One job at a time: it forks the processes, watches their exits,
memory, output and the deadline, kills what must be killed with all its descendants, and reports.

It ends when the driver's end of the socket closes, however the driver ended, and takes its folder with it.
"""

import ctypes
import gc
import glob
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback

from d3bot_child import run_child

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE = 3.0  # seconds that the peers of a failed rank get to fail by themselves, so that their errors are seen
POLL_MS = 20
STACK_SECONDS = 2.0  # longest wait for the stacks of hung ranks; a loaded machine may need more than a moment
_libc = ctypes.CDLL(None)


def main():
    control = socket.socket(fileno=int(sys.argv[1]))
    preload = sys.argv[2].split(",")
    home = os.getcwd()
    sys.path.pop(0)  # this folder: a script must not find the worker's modules by accident
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # while we import, nobody reads the socket
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a rank leaves behind becomes our child, so we can kill it
    missing = []
    for name in preload:
        required = not name.startswith("?")
        try:
            importlib.import_module(name.lstrip("?"))
        except BaseException as error:  # an import may raise anything, SystemExit included
            if required:
                say(control, {"ready": False, "error": f"{type(error).__name__}: {error}"})
                return
            missing.append(name.lstrip("?"))
    gc.collect()
    gc.freeze()  # the children share these pages instead of copying them at their first collection
    # The kernel counts the *thread* that started us as our parent, and that one may end long before the driver does.
    _libc.prctl(PR_SET_PDEATHSIG, 0)
    try:
        say(control, {"ready": True, "pid": os.getpid(), "missing": missing})
        while True:
            line = hear(control)
            if not line:
                break
            answer = run_job(json.loads(line), control)
            reap_strays()
            if answer is None:
                break
            say(control, answer)
    except OSError:  # the driver went away while we spoke
        pass
    reap_strays()
    shutil.rmtree(home, ignore_errors=True)
    os._exit(0)  # what the library registered for the end of a process is not needed, and may hang


def say(control, message):
    control.sendall(json.dumps(message).encode() + b"\n")


def hear(control):
    """Return the next line of the driver, or nothing when it closed its end."""
    line = b""
    while not line.endswith(b"\n"):
        piece = control.recv(65536)
        if not piece:
            return b""
        line += piece
    return line


def run_job(job, control):
    """Fork the job's processes, watch them to their end, and return how each ended; None if the driver is gone.

    A free port for each is held as long as they live, so that nobody else is given it.
    """
    held = [hold_port() for _ in range(job["processes"])]
    job["addresses"] = [f"localhost:{port.getsockname()[1]}" for port in held]
    try:
        return watch(job, control, held)
    finally:
        for port in held:
            port.close()


def watch(job, control, held):
    """Fork the job's processes and return how each ended; None if the driver is gone."""
    began = time.monotonic()
    living, ended, failed = {}, {}, False
    for rank in range(job["processes"]):
        pid = os.fork()
        if pid == 0:
            become_rank(job, rank, control, held)
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
                if status or not os.path.exists(outcome_path(job, rank)):  # `os._exit(0)` is no success
                    failed = True
                    last = min(last, now + GRACE)
        if not living:
            break
        if now - checked > 0.1:
            checked = now
            over = excess(job, living)
            if over:
                stop(job, living, ended, dict.fromkeys(living.values(), "peer") | over, began)
                break
        if now > last:
            why = "peer" if failed else "deadline"
            stop(job, living, ended, dict.fromkeys(living.values(), why), began)
            break
        readable, _, _ = select.select([control], [], [], POLL_MS / 1000 if now - began > 0.2 else 0.002)
        if readable and driver_gone(control):
            stop(job, living, ended, {}, began)
            return None
    ranks = [ended[rank] for rank in range(job["processes"])]
    return {"job": job["job"], "ranks": ranks, "seconds": time.monotonic() - began}


def hold_port():
    """Return a socket bound to a free port of this machine: only who allows reuse, as gRPC does, may listen there."""
    port = socket.socket()
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind(("localhost", 0))
    return port


def become_rank(job, rank, control, held):
    """Run the job in this forked process, which ends here whatever happens."""
    try:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(control.detach())  # the channel to the driver is not for what the script runs
        for port in held:
            port.close()  # the zygote holds it
        run_child(job, rank)
    except BaseException:
        traceback.print_exc()
    os._exit(70)  # EX_SOFTWARE: the outcome could not even be written


def driver_gone(control):
    try:
        return not control.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def excess(job, living):
    """Return {rank: "memory" or "output"} for the first rank found over its limit, else nothing."""
    for pid, rank in living.items():
        try:
            with open(f"/proc/{pid}/statm") as file:
                resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
        if resident > job["memory"]:
            return {rank: "memory"}
        if printed(job, rank) > job["output"]:
            return {rank: "output"}
    return {}


def outcome_path(job, rank):
    return os.path.join(job["folder"], f"rank-{rank}.json")


def printed(job, rank):
    """Return how many bytes a rank has printed."""
    try:
        return os.path.getsize(os.path.join(job["folder"], f"rank-{rank}.out"))
    except OSError:
        return 0


def stop(job, living, ended, why, began):
    """Kill every living rank with its process group; past the deadline ask it for its stacks first.

    `why` says for each rank why it is killed.
    """
    late = {pid: rank for pid, rank in living.items() if why.get(rank) == "deadline"}
    before = {rank: printed(job, rank) for rank in late.values()}
    for pid in late:
        signal_quietly(pid, signal.SIGUSR1)
    until = time.monotonic() + STACK_SECONDS
    while late and time.monotonic() < until:
        time.sleep(0.1)
        after = {rank: printed(job, rank) for rank in late.values()}
        if all(after[rank] > before[rank] for rank in after):
            time.sleep(0.2)  # a dump of many threads is written line by line
            break
    for pid, rank in living.items():
        group_kill(pid)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        ended[rank] = {"code": code, "seconds": time.monotonic() - began, "why": why.get(rank, "")}
    living.clear()


def reap_strays():
    """Kill and reap every process that a rank left behind, however it detached itself."""
    while True:
        children = []
        for path in glob.glob("/proc/self/task/*/children"):
            with open(path) as file:
                children += [int(pid) for pid in file.read().split()]
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
