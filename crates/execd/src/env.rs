//! Every variable of the environment that means something to execd.

use std::{collections::BTreeMap, ffi::OsString};

/// The access token, as with `--access-token`. Never passed on to commands.
pub const ACCESS_TOKEN: &str = "EXECD_ACCESS_TOKEN";

/// How long commands may take to end, as with `--graceful-shutdown-timeout`.
pub const GRACE: &str = "EXECD_API_GRACE_SHUTDOWN";

/// The file that messages are added to, in place of the standard error.
pub const LOG_FILE: &str = "EXECD_LOG_FILE";

/// The file whose assignments are added to the environment of every command, read anew for each.
/// Commands see the variable, so that they can add to the file.
pub const ENV_FILE: &str = "EXECD_ENVS";

/// What [`ENV_FILE`] is in a sandbox of the native runtime unless set.
pub const DEFAULT_ENV_FILE: &str = "/opt/opensandbox/.env";

/// What happens to a command whose client has gone, as with `--on-disconnect`. In a sandbox of the
/// native runtime this is a variable of the sandbox, as are the next two.
pub const ON_DISCONNECT: &str = "EXECD_ON_DISCONNECT";

/// How many bytes of a background command's output are kept, as with `--command-log-limit`.
pub const COMMAND_LOG_LIMIT: &str = "EXECD_COMMAND_LOG_LIMIT";

/// How many bytes of output are kept of all background commands that have ended, as with
/// `--command-log-total`.
pub const COMMAND_LOG_TOTAL: &str = "EXECD_COMMAND_LOG_TOTAL";

/// Languages of which an interpreter is started with the sandbox, before anybody has a cell for it, with
/// commas between them. A variable of the sandbox, as are the next two.
pub const CODE_AHEAD: &str = "EXECD_CODE_AHEAD";

/// Modules of Python that such an interpreter has imported already, with commas between them.
pub const CODE_IMPORTS: &str = "EXECD_CODE_IMPORTS";

/// After how many seconds without a cell the interpreter of a context is ended; 0 is never.
pub const CODE_IDLE: &str = "EXECD_CODE_IDLE";

/// What runs code whose context does not say: `builtin` or `jupyter`. Unless set, a kernel where the
/// image has one for the language and it is the better choice. In a sandbox of the native runtime this is a variable of the sandbox.
pub const CODE_KIND: &str = "EXECD_CODE_KIND";

/// Where commands without a path are looked for.
pub const PATH: &str = "PATH";

/// What [`PATH`] is unless set.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What `~` stands for.
pub const HOME: &str = "HOME";

/// What programs in a terminal know of it.
pub const TERM: &str = "TERM";

/// Files of authorities, with which programs trust no others.
pub const TRUSTS_ONLY: [&str; 7] = [
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
];

/// Files of authorities, which programs trust beside those that they do anyway.
pub const TRUSTS_TOO: [&str; 2] = ["DENO_CERT", "NODE_EXTRA_CA_CERTS"];

/// The environment that this process was started with, without what is meant for execd alone.
pub(crate) fn inherited() -> BTreeMap<OsString, OsString> {
    std::env::vars_os().filter(|(name, _)| name != ACCESS_TOKEN).collect()
}
