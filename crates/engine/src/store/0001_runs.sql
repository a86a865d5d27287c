-- Runs, what they wrote and the files they left.

CREATE TABLE runs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    principal TEXT NOT NULL,
    server TEXT NOT NULL,
    language TEXT NOT NULL,
    -- `running` until it ended.
    outcome TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    stdout_bytes INTEGER NOT NULL DEFAULT 0,
    stderr_bytes INTEGER NOT NULL DEFAULT 0,
    -- Log and files together: what retention counts.
    kept_bytes INTEGER NOT NULL DEFAULT 0,
    -- The result as JSON but for what it wrote and the content of its files; NULL while it runs.
    record TEXT
) STRICT;

CREATE INDEX runs_of_principal ON runs (principal, created_ms);
CREATE INDEX runs_by_age ON runs (created_ms, outcome, kept_bytes);
CREATE INDEX runs_running ON runs (server) WHERE outcome = 'running';

CREATE TABLE log (
    run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    -- Where the block ends, in both streams together and in each.
    both_end INTEGER NOT NULL,
    stdout_end INTEGER NOT NULL,
    stderr_end INTEGER NOT NULL,
    marks BLOB NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (run, seq)
) STRICT;

CREATE TABLE artifacts (
    run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    path TEXT NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (run, seq)
) STRICT;
