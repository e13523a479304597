-- Whether the sandbox may have a vault: programs in it trust what the server makes for that.
ALTER TABLE sandboxes ADD COLUMN credential_proxy INTEGER NOT NULL DEFAULT 0;
