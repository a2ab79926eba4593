-- What the test of embedded migrations makes.
CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;
