"""redis-py, unmodified, at a node that is killed and started again: python redis_py.py URL. It sends again what broke;
what must not be done twice has a name, or is not sent again."""

import sys

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

import common

URL = sys.argv[1]
OPTIONS = {"decode_responses": True, "socket_timeout": common.SECONDS_MAX}
AGAIN = {
    "retry": Retry(ExponentialBackoff(base=0.05, cap=1), retries=common.SECONDS_MAX),
    "retry_on_error": [redis.ConnectionError, redis.TimeoutError, redis.exceptions.TryAgainError],
}

again = redis.Redis.from_url(URL, **OPTIONS, **AGAIN)
once = redis.Redis.from_url(URL, **OPTIONS, retry=None)
done = counted = unknown = 0
for step in common.steps():
    common.equal(again.set(f"step:{step}", step), True)
    common.equal(again.execute_command("Q.ID", f"step-{step}", "INCR", "steps"), step + 1)
    try:
        once.incr("once")
        counted += 1
    except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError):
        unknown += 1
    done += 1
common.equal(again.mget(*(f"step:{step}" for step in range(done))), [str(step) for step in range(done)])
common.equal(again.get("steps"), str(done))
count = int(again.get("once"))
assert counted <= count <= counted + unknown, f"{counted} were counted, {unknown} are unknown, and the count is {count}"
print("passed")
