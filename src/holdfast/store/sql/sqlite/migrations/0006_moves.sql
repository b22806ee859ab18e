-- Moving a store elsewhere: there must never be two that take runs.

-- Whether this store is being moved. One row at most; none: it is in use, and only here.
CREATE TABLE moves (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    state TEXT NOT NULL,                          -- leaving, left or arriving
    other TEXT NOT NULL,                          -- the store at the other end, without a password
    token TEXT NOT NULL,                          -- of this move: both ends have the same
    at INTEGER NOT NULL
);
