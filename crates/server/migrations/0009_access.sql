-- By how many seconds a request puts the expiry off; not at all if it is NULL.
ALTER TABLE sandboxes ADD COLUMN renew_seconds INTEGER;
-- After how many seconds without use what becomes of the sandbox: 'pause' or 'delete'. Nothing if they are NULL.
ALTER TABLE sandboxes ADD COLUMN idle_seconds INTEGER;
ALTER TABLE sandboxes ADD COLUMN idle_action TEXT;
-- Whether a sandbox whose goal is 'paused' runs again as soon as somebody uses it.
ALTER TABLE sandboxes ADD COLUMN asleep INTEGER NOT NULL DEFAULT 0;
