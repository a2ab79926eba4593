-- What there is to be had. Nothing here forbids less than nothing: the transaction that sells has to see to that.
CREATE TABLE stock (item TEXT PRIMARY KEY, left INTEGER NOT NULL) STRICT;

-- An order has the name that its customer gave it, so that one who asks twice orders once.
CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) STRICT;

CREATE TABLE lines (
    order_id TEXT NOT NULL REFERENCES orders (id),
    item TEXT NOT NULL REFERENCES stock (item),
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (order_id, item)
) STRICT, WITHOUT ROWID;
