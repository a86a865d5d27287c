-- What the runs of each persistent sandbox may reach outside, by name. Earlier ones reach nothing.
ALTER TABLE persistent_sandboxes ADD COLUMN access TEXT NOT NULL DEFAULT '';
