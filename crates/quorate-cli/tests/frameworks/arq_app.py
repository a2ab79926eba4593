"""arq, unmodified: python arq_app.py URL URL. The caller is at the first node, and the worker at the second."""

import asyncio
import os
import sys

from arq import create_pool
from arq.connections import RedisSettings

import common

NUMBERS = range(5)


async def add(_, x, y):
    return x + y


class WorkerSettings:
    functions = [add]
    redis_settings = RedisSettings.from_dsn(os.environ.get("ARQ_URL", sys.argv[-1]))
    poll_delay = 0.05


async def main():
    os.environ["ARQ_URL"] = sys.argv[2]
    common.run_worker("arq", "arq_app.WorkerSettings")
    redis = await create_pool(RedisSettings.from_dsn(sys.argv[1]))
    for step in common.steps():
        added = [await redis.enqueue_job("add", number, step) for number in NUMBERS]
        results = [await one.result(timeout=common.SECONDS_MAX, poll_delay=0.05) for one in added]
        common.equal(results, [number + step for number in NUMBERS])
    # A job with an id is done once.
    once = [await redis.enqueue_job("add", 1, 2, _job_id="once", _defer_by=1) for _ in range(2)]
    common.equal((await once[0].result(timeout=common.SECONDS_MAX), once[1]), (3, None))
    print("passed")


if __name__ == "__main__":
    asyncio.run(main())
