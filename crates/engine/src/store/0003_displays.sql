-- What runs showed besides text.

CREATE TABLE displays (
    run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    mime TEXT NOT NULL,
    text TEXT NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (run, seq)
) STRICT;
