"""RQ, unmodified: python rq_app.py URL URL. The caller is at the first node, and the worker at the second."""

import os
import sys

from redis import Redis
from rq import Queue

import common

NUMBERS = range(5)


def connect(url):
    return Redis.from_url(url, socket_timeout=common.SECONDS_MAX)


def add(x, y):
    # The results of RQ are streams, so jobs keep what is worth keeping themselves.
    with connect(os.environ["RQ_URL"]) as redis:
        redis.rpush(f"sums:{y}", x + y)


def main():
    os.environ["RQ_URL"] = sys.argv[2]
    worker = ["worker", f"--url={sys.argv[2]}", "--worker-class=rq.SimpleWorker", "--quiet", "app"]
    common.run_worker("rq.cli", *worker)
    redis = connect(sys.argv[1])
    queue = Queue("app", connection=redis)
    for step in common.steps():
        for number in NUMBERS:
            queue.enqueue("rq_app.add", number, step, result_ttl=0)
        popped = [redis.blpop([f"sums:{step}"], timeout=common.SECONDS_MAX) for _ in NUMBERS]
        common.equal([int(one[1]) for one in popped], [number + step for number in NUMBERS])
        # Nothing was done twice, and each job is gone once it is done.
        common.equal(redis.exists(f"sums:{step}"), 0)
    print("passed")


if __name__ == "__main__":
    main()
