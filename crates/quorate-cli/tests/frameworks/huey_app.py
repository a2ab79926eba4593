"""Huey, unmodified: python huey_app.py URL URL. The caller is at the first node, and the consumer at the second."""

import os
import sys

from huey import RedisHuey

import common

NUMBERS = range(5)

# With `notify_result`, the result is waited for.
options = {"notify_result": True, "socket_timeout": common.SECONDS_MAX}
host, port = os.environ.get("HUEY_ADDR", sys.argv[1].removeprefix("redis://")).split(":")
huey = RedisHuey("app", host=host, port=int(port), **options)


@huey.task()
def add(x, y):
    return x + y


def main():
    os.environ["HUEY_ADDR"] = sys.argv[2].removeprefix("redis://")
    common.run_worker("huey.bin.huey_consumer", "huey_app.huey", "--workers=2", "--quiet")
    for step in common.steps():
        added = [add(number, step) for number in NUMBERS]
        common.equal([one.get(blocking=True, timeout=common.SECONDS_MAX) for one in added], [n + step for n in NUMBERS])
    print("passed")


if __name__ == "__main__":
    # The consumer knows tasks by the name of their module.
    import huey_app

    huey_app.main()
