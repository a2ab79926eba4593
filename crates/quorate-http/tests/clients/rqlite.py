"""pyrqlite: python rqlite.py URL [NAME:PASSWORD]"""

import sys
from urllib.parse import urlparse

import pyrqlite.dbapi2 as dbapi2

url = urlparse(sys.argv[1])
# It breaks the line after 57 letters of both, so a token as the password is too long for it.
login = dict(zip(("user", "password"), sys.argv[2].split(":"))) if len(sys.argv) > 2 else {}
connection = dbapi2.connect(scheme=url.scheme, host=url.hostname, port=url.port, **login)
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE foo (id INTEGER NOT NULL PRIMARY KEY, name TEXT UNIQUE, data BLOB)")
    cursor.execute("INSERT INTO foo (name, data) VALUES (?, ?)", ("ann", b"\x00\xff"))
    assert cursor.lastrowid == 1, cursor.lastrowid
    cursor.executemany("INSERT INTO foo (name) VALUES (?)", [("bob",), ("it's",)])
    assert cursor.rowcount == 2, cursor.rowcount
    cursor.execute("SELECT id, name, data FROM foo WHERE name = :name", {"name": "ann"}, consistency="strong")
    row = cursor.fetchone()
    assert (row["id"], row["name"], row["data"]) == (1, "ann", b"\x00\xff"), row
    cursor.execute("SELECT name FROM foo ORDER BY id")
    assert [row[0] for row in cursor.fetchall()] == ["ann", "bob", "it's"]
    cursor.execute("UPDATE foo SET name = ? WHERE id = ?", ("eve", 2), queue=True, wait=True)
    cursor.execute("SELECT name FROM foo WHERE id = 2")
    assert cursor.fetchone()[0] == "eve"
    try:
        cursor.execute("INSERT INTO foo (name) VALUES ('eve')")
        raise AssertionError("the name is taken")
    except dbapi2.Error as error:
        assert "UNIQUE constraint failed" in str(error), error
print("passed")
