"""The steps that each program goes on with while the test kills the leader, and the worker that it runs meanwhile."""

import atexit
import os
import subprocess
import sys
import threading

# So many before the leader is killed, and so many after it is there again.
STEPS = 10
# How long a reply or a result may take. The port tries a write for 30 seconds.
SECONDS_MAX = 60


def steps():
    """Numbers steps. Prints `working` after the first ones, and ends some steps after the end of standard input."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    number = after = 0
    while after < STEPS:
        after += ended.is_set()
        yield number
        number += 1
        if number == STEPS:
            print("working", flush=True)


def run_worker(module, *arguments):
    """Runs a worker by its own command, until this program ends. It finds the modules of this directory."""
    env = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}
    # The lines of standard output are this program's.
    worker = subprocess.Popen([sys.executable, "-m", module, *arguments], env=env, stdout=sys.stderr)
    atexit.register(lambda: (worker.terminate(), worker.wait()))


def equal(found, expected):
    assert found == expected, f"{found!r} instead of {expected!r}"
