-- The very image that a snapshot stands on; NULL if its name says it all, as host does.
ALTER TABLE snapshots ADD COLUMN image_digest TEXT;
