"""Celery, unmodified: python celery_app.py URL URL. The caller is at the first node, and the worker at the second."""

import os
import sys

from celery import Celery, chain, group

import common

NUMBERS = range(5)
# The worker gets them the other way round.
URLS = os.environ.get("CELERY_URLS", " ".join(sys.argv[1:])).split()

app = Celery("celery_app", broker=";".join(URLS), backend=URLS[0])
app.conf.update(
    # Both need scripts: to bind queues that expire, and to give tasks of lost workers to others.
    worker_enable_remote_control=False,
    broker_transport_options={"ack_emulation": False},
    broker_connection_retry_on_startup=True,
)


@app.task
def add(x, y):
    return x + y


def main():
    os.environ["CELERY_URLS"] = " ".join(reversed(URLS))
    worker = ["worker", "--concurrency=2", "--without-gossip", "--without-mingle", "--loglevel=WARNING"]
    common.run_worker("celery", "--app=celery_app", *worker)
    for step in common.steps():
        added = group(add.s(number, step) for number in NUMBERS).delay()
        common.equal(added.get(timeout=common.SECONDS_MAX, interval=0.05), [number + step for number in NUMBERS])
        added.forget()
    chained = chain(add.s(1, 2), add.s(3), add.s(4)).delay()
    common.equal(chained.get(timeout=common.SECONDS_MAX), 10)
    print("passed")


if __name__ == "__main__":
    main()
