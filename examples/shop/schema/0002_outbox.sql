-- Messages to another service. A message is written in the same transaction as its order, and deleted once delivered.
CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, order_id TEXT NOT NULL REFERENCES orders (id)) STRICT;
