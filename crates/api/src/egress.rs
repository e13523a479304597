//! Wire types of the egress API: network policy and credential vault.
