-- The packages of each persistent sandbox, as JSON. Earlier ones have none.
ALTER TABLE persistent_sandboxes ADD COLUMN packages TEXT NOT NULL DEFAULT '[]';
