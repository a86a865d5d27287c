-- Sandboxes that last: what is needed to bring one back with its files.
CREATE TABLE sandboxes (
    id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    name TEXT NOT NULL,
    -- Chooses the identity of its files on the host; no two may share one.
    identity INTEGER NOT NULL UNIQUE,
    limits TEXT NOT NULL,
    ttl_ms INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    used_ms INTEGER NOT NULL,
    runs INTEGER NOT NULL DEFAULT 0,
    -- Interpreters that had a state, by language, separated by blanks.
    languages TEXT NOT NULL DEFAULT '',
    disk_bytes INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX sandboxes_by_principal ON sandboxes (principal, created_ms);
