-- The data behind a display, as JSON.

ALTER TABLE displays ADD COLUMN json TEXT;
