//! Control plane: routes, auth, store, reconciler, expiry.
