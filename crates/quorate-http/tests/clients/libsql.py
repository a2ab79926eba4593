"""libsql-client over HTTP or WebSocket: python libsql.py URL [TOKEN]"""

import asyncio
import sys

import libsql_client

# How often a transaction that the server has aborted is run.
RUNS_MAX = 10


async def again(run):
    """Runs a transaction, and runs it again while the server says that it was aborted, because its leader was lost."""
    for left in reversed(range(RUNS_MAX)):
        try:
            return await run()
        except libsql_client.LibsqlError as error:
            if left == 0 or error.code != "TRANSACTION_ABORTED":
                raise


async def keep(client):
    with client.transaction() as kept:
        await kept.execute("INSERT INTO users (name) VALUES ('cid')")
        await kept.commit()


async def drop(client):
    with client.transaction() as dropped:
        await dropped.execute("DELETE FROM users")


async def main(url, token=None):
    async with libsql_client.create_client(url, auth_token=token) as client:
        await client.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE, data BLOB)")
        done = await client.execute("INSERT INTO users (name, data) VALUES (?, ?)", ["ann", b"\x00\xff"])
        assert (done.rows_affected, done.last_insert_rowid) == (1, 1), done
        found = await client.execute("SELECT id, name, data, :x AS x FROM users", {"x": 2**60})
        assert tuple(found.rows[0]) == (1, "ann", b"\x00\xff", 2**60), found.rows[0]
        assert found.columns == ("id", "name", "data", "x"), found.columns
        results = await client.batch(["INSERT INTO users (name) VALUES ('bob')", "SELECT count(*) FROM users"])
        assert results[1].rows[0][0] == 2
        try:
            await client.batch(["DELETE FROM users", "INSERT INTO missing VALUES (1)"])
            raise AssertionError("the batch must fail")
        except libsql_client.LibsqlError as error:
            assert error.code == "SQLITE_ERROR", error
        found = await client.execute("SELECT count(*) FROM users")
        assert found.rows[0][0] == 2
        if url.startswith("ws"):
            # This client has them over WebSocket only.
            await again(lambda: keep(client))
            await again(lambda: drop(client))
            found = await client.execute("SELECT count(*) FROM users")
            assert found.rows[0][0] == 3
    print("passed")


asyncio.run(main(*sys.argv[1:]))
