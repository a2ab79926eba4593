-- The stock of each item. No constraint forbids a negative stock: the transaction that sells must check it.
CREATE TABLE stock (item TEXT PRIMARY KEY, left INTEGER NOT NULL) STRICT;

-- The customer chooses the id of an order, so that an order which is sent twice is placed once.
CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) STRICT;

CREATE TABLE lines (
    order_id TEXT NOT NULL REFERENCES orders (id),
    item TEXT NOT NULL REFERENCES stock (item),
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (order_id, item)
) STRICT, WITHOUT ROWID;
