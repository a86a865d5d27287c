-- The wall of each persistent sandbox. All earlier ones are behind the native wall.
--
-- The table has a new name on purpose. A server of an earlier version that has the database open does not know
-- walls: it would run a sandbox behind its own, which may be a weaker one. Its statements about sandboxes fail
-- from now on. Its statements about runs go on: their tables are unchanged.
ALTER TABLE sandboxes RENAME TO persistent_sandboxes;
ALTER TABLE persistent_sandboxes ADD COLUMN wall TEXT NOT NULL DEFAULT 'native';
