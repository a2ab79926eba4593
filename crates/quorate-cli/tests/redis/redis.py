"""redis-py, unmodified: python redis.py URL. Prints `counting` before its last step, and `passed` at the end."""

import os
import sys
import threading
import time

# This file has the name of the package.
sys.path.pop(0)
import redis

SECONDS = 5
URL = sys.argv[1]
OPTIONS = {"ssl_ca_certs": os.environ["SSL_CERT_FILE"]} if URL.startswith("rediss") else {}


def connect(protocol):
    return redis.Redis.from_url(URL, protocol=protocol, decode_responses=True, **OPTIONS)


def equal(found, expected):
    assert found == expected, f"{found!r} instead of {expected!r}"


def all_types(client):
    client.flushdb()
    equal(client.set("s", "v", ex=100), True)
    equal(client.get("s"), "v")
    equal(client.set("s", "w", nx=True), None)
    assert 0 < client.ttl("s") <= 100
    equal(client.incrby("n", 5), 5)
    equal(client.setbit("bits", 7, 1), 0)
    equal(client.bitcount("bits"), 1)
    equal(client.hset("h", mapping={"a": "1", "b": "2"}), 2)
    equal(client.hgetall("h"), {"a": "1", "b": "2"})
    equal(client.rpush("l", "x", "y", "z"), 3)
    equal(client.lrange("l", 0, -1), ["x", "y", "z"])
    equal(client.sadd("set", "m", "n"), 2)
    equal(client.smembers("set"), {"m", "n"})
    equal(client.zadd("z", {"one": 1, "two": 2}), 2)
    equal([member for member, _ in client.zrange("z", 0, -1, withscores=True)], ["one", "two"])
    equal(client.zscore("z", "two"), 2.0)
    equal(sorted(client.scan_iter(match="*")), sorted(["s", "n", "bits", "h", "l", "set", "z"]))
    equal(client.type("z"), "zset")
    try:
        client.lpush("s", "x")
        raise AssertionError("a string is no list")
    except redis.ResponseError as error:
        assert str(error).startswith("WRONGTYPE"), error


def many_at_once(client):
    pipeline = client.pipeline(transaction=False)
    for number in range(100):
        pipeline.set(f"p{number}", number)
        pipeline.get(f"p{number}")
    equal(pipeline.execute(), [value for number in range(100) for value in (True, str(number))])
    transaction = client.pipeline()
    transaction.incr("t").incr("t").lpush("n", "x").get("t")
    found = transaction.execute(raise_on_error=False)
    equal((found[0], found[1], found[3]), (1, 2, "2"))
    assert isinstance(found[2], redis.ResponseError)


def watched(client, other):
    with client.pipeline() as transaction:
        transaction.watch("w")
        other.set("w", "first")
        transaction.multi()
        transaction.set("w", "second")
        try:
            transaction.execute()
            raise AssertionError("the key has changed")
        except redis.WatchError:
            pass
    equal(client.get("w"), "first")
    equal(client.transaction(lambda step: step.multi() or step.set("w", "third"), "w"), [True])


def blocking(client, other):
    client.delete("queue", "scores")
    equal(client.blpop("queue", timeout=0.05), None)
    found = []
    waiter = threading.Thread(target=lambda: found.append(other.blpop(["none", "queue"], timeout=30)))
    waiter.start()
    client.rpush("queue", "item")
    waiter.join()
    equal([list(pair) for pair in found], [["queue", "item"]])
    client.zadd("scores", {"best": 1})
    equal(list(client.bzpopmin("scores", timeout=1)), ["scores", "best", 1.0])


def counting(client):
    """Counts while the leader is killed. Nothing is sent twice, so nothing may count twice."""
    print("counting", flush=True)
    done, unknown, end = 0, 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            client.execute_command("INCR", "count")
            done += 1
        except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError):
            unknown += 1
    count = int(client.get("count"))
    assert done <= count <= done + unknown, f"{done} are done, {unknown} unknown, and the count is {count}"


for version in (2, 3):
    first, second = connect(version), connect(version)
    all_types(first)
    many_at_once(first)
    watched(first, second)
    blocking(first, second)
counting(redis.Redis.from_url(URL, retry=None, **OPTIONS))
print("passed")
