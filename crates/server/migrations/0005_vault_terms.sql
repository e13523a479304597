-- What the maker of the sandbox asks of whoever fills its vault, as JSON; nothing if it is NULL.
ALTER TABLE sandboxes ADD COLUMN vault_terms TEXT;
