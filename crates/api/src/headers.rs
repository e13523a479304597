//! Names of the headers that the protocol defines, in the lower case that HTTP libraries want.

/// The caller's key on lifecycle calls.
pub const API_KEY: &str = "open-sandbox-api-key";
/// The sandbox's own token on execd calls.
pub const EXECD_TOKEN: &str = "x-execd-access-token";
/// The sandbox's own token on egress calls.
pub const EGRESS_TOKEN: &str = "opensandbox-egress-auth";
/// The token of a sandbox made with `secureAccess`.
pub const SECURE_ACCESS: &str = "opensandbox-secure-access";
/// Names the sandbox and port in header routing.
pub const INGRESS_TO: &str = "opensandbox-ingress-to";
/// `skip` keeps one request from renewing the sandbox.
pub const ACCESS_RENEW: &str = "opensandbox-access-renew";
/// Set on endpoint answers of sandboxes that came from a template.
pub const ORIGIN: &str = "open-sandbox-origin";
/// What the client believes its own address to be; informational.
pub const CLIENT_IP: &str = "open-sandbox-client-ip";
/// Correlates one request through all logs.
pub const REQUEST_ID: &str = "x-request-id";
/// Where the next read of a background command's log starts.
pub const COMMAND_CURSOR: &str = "execd-commands-tail-cursor";
/// From when on the output is that was asked for by its age, in milliseconds since 1970.
pub const OUTPUT_SINCE: &str = "execd-output-since";
/// Where the next read of an isolated run's log starts.
pub const ISOLATED_CURSOR: &str = "execd-isolated-tail-cursor";
