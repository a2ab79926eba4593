-- What is to be told to somebody else, written together with what it tells of, and gone once it was told.
CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, order_id TEXT NOT NULL REFERENCES orders (id)) STRICT;
