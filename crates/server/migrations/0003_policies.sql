-- What a sandbox may reach, as it was asked for; without one, what the operator says.
ALTER TABLE sandboxes ADD COLUMN policy TEXT; -- JSON
