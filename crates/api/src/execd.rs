//! Wire types of the API that execd serves inside a sandbox.
