//! Root file systems for sandboxes: the host image now, an OCI store later.
