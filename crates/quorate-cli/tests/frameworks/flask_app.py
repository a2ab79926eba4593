"""Flask-Caching, unmodified: python flask_app.py URL URL. An application at each node."""

import sys

from flask import Flask
from flask_caching import Cache

import common


def application(url):
    app = Flask(__name__)
    options = {"socket_timeout": common.SECONDS_MAX}
    config = {"CACHE_TYPE": "RedisCache", "CACHE_REDIS_URL": url, "CACHE_OPTIONS": options}
    cache = Cache(app, config={**config, "CACHE_DEFAULT_TIMEOUT": 3600})
    app.made = []

    @app.route("/page/<int:number>")
    @cache.cached()
    def page(number):
        app.made.append(number)
        return f"page {number}"

    @cache.memoize()
    def square(number):
        app.made.append(-number)
        return number * number

    app.square = square
    return app, cache


(first, cache), (second, other) = map(application, sys.argv[1:])
cache.clear()
done = 0
for step in common.steps():
    for _ in range(2):
        common.equal(first.test_client().get(f"/page/{step}").text, f"page {step}")
        with first.app_context():
            common.equal(first.square(step + 1), (step + 1) ** 2)
    cache.set_many({f"a{step}": step, f"b{step}": [step, "text"]})
    common.equal(cache.get_many(f"a{step}", f"b{step}"), [step, [step, "text"]])
    common.equal(cache.add(f"a{step}", 0), False)
    common.equal(cache.cache.inc("count"), step + 1)
    common.equal(cache.delete(f"b{step}"), True)
    done += 1
common.equal(first.made, [made for step in range(done) for made in (step, -step - 1)])
# After a write at its node, a read there sees all that was acknowledged before it at any node.
other.set("written", True)
common.equal(other.get_many(*(f"a{step}" for step in range(done))), list(range(done)))
for step in range(done):
    common.equal(second.test_client().get(f"/page/{step}").text, f"page {step}")
common.equal(second.made, [])
print("passed")
