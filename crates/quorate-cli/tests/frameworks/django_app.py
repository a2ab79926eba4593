"""Django's cache and sessions, unmodified: python django_app.py URL URL. A cache at each node."""

import sys

import django
from django.conf import settings
from django.core.cache import caches

import common


def at(url):
    options = {"socket_timeout": common.SECONDS_MAX}
    return {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url, "OPTIONS": options}


settings.configure(
    CACHES={"default": at(sys.argv[1]), "other": at(sys.argv[2])},
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    INSTALLED_APPS=["django.contrib.sessions"],
)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore

cache, other = caches["default"], caches["other"]
cache.clear()
cache.set("count", 0)
session = SessionStore()
session["steps"] = 0
session.create()
done = 0
for step in common.steps():
    cache.set_many({f"a{step}": step, f"b{step}": {"of": step}})
    common.equal(cache.get_many([f"a{step}", f"b{step}", "none"]), {f"a{step}": step, f"b{step}": {"of": step}})
    common.equal((cache.add(f"a{step}", 0), cache.add(f"c{step}", step, timeout=100)), (False, True))
    common.equal((cache.touch(f"c{step}", 1000), cache.touch("none")), (True, False))
    common.equal(cache.incr("count"), step + 1)
    common.equal((cache.delete(f"b{step}"), cache.has_key(f"b{step}")), (True, False))
    session = SessionStore(session.session_key)
    common.equal(session["steps"], step)
    session["steps"] += 1
    session.save()
    done += 1
# After a write at its node, a read there sees all that was acknowledged before it at any node.
common.equal(other.incr("count"), done + 1)
common.equal(other.get_many([f"a{step}" for step in range(done)]), {f"a{step}": step for step in range(done)})
print("passed")
