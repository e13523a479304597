//! Variables of the environment by which clients of other servers set up the process beside the
//! sandbox that watches its network. Here that is the server.

use crate::{error::ApiError, terms::VaultTerms};

pub(super) const PREFIX: &str = "OPENSANDBOX_EGRESS_";

/// What becomes of a variable.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The sandbox gets it, too.
    Passed,
    /// It says how that process should do its work, and there is none.
    Dropped,
}

/// Decides about `OPENSANDBOX_EGRESS_…`. What asks something of the vault is put down in `terms`;
/// what asks for something that would not happen is refused.
pub(super) fn admit(key: &str, value: &str, terms: &mut VaultTerms) -> Result<Fate, ApiError> {
    let refused = |why: &str| Err(ApiError::unsupported(format!("env key {key}: {why}")));
    match key.strip_prefix(PREFIX).unwrap_or_default() {
        "MITMPROXY_TRANSPARENT" => Ok(Fate::Passed),
        "LOG_LEVEL" | "DNS_UPSTREAM_TIMEOUT" | "METRICS_EXTRA_ATTRS" | "POLICY_FILE" => {
            Ok(Fate::Dropped)
        }
        "CREDENTIAL_VAULT_REQUIRE_TLS" => {
            terms.require_tls = is_on(value);
            Ok(Fate::Dropped)
        }
        "CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH" => {
            terms.require_scoped_match = is_on(value);
            Ok(Fate::Dropped)
        }
        "CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS" => {
            let proxies = value.split(',').map(str::trim).filter(|proxy| !proxy.is_empty());
            terms.trusted_proxies = proxies.map(str::to_owned).collect();
            let unfit = |error| ApiError::invalid(format!("env key {key}: {error}"));
            terms.check().map_err(unfit)?;
            Ok(Fate::Dropped)
        }
        "MITMPROXY_SSL_INSECURE" if !is_on(value) => Ok(Fate::Dropped),
        "MITMPROXY_EXTRA_PORTS" | "DENY_WEBHOOK" if value.trim().is_empty() => Ok(Fate::Dropped),
        "MITMPROXY_SSL_INSECURE" => refused("the certificates of hosts are always verified"),
        "MITMPROXY_EXTRA_PORTS" => refused("credentials are put in on ports 80 and 443 only"),
        // The server would call, with its own reach, whom a client names.
        "DENY_WEBHOOK" => refused(
            "who is told of denials is set by the operator, for all sandboxes: deny-webhook in \
             [egress] of the server's configuration",
        ),
        _ => Err(ApiError::invalid(format!(
            "env key {:?} is reserved: keys with {PREFIX} are settings of the server's, and this \
             is none of them",
            key.chars().take(64).collect::<String>()
        ))),
    }
}

/// The words for yes that other servers know.
fn is_on(value: &str) -> bool {
    matches!(value.trim().to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "y" | "on")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_happen_is_refused_and_the_rest_is_not() {
        for (name, value, fate) in [
            ("MITMPROXY_TRANSPARENT", "true", Some(Fate::Passed)),
            ("LOG_LEVEL", "debug", Some(Fate::Dropped)),
            ("POLICY_FILE", "/x", Some(Fate::Dropped)),
            ("MITMPROXY_SSL_INSECURE", "false", Some(Fate::Dropped)),
            ("MITMPROXY_SSL_INSECURE", "Yes", None),
            ("CREDENTIAL_VAULT_REQUIRE_TLS", "0", Some(Fate::Dropped)),
            ("CREDENTIAL_VAULT_REQUIRE_TLS", "1", Some(Fate::Dropped)),
            ("CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH", "on", Some(Fate::Dropped)),
            ("CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS", "10.0.0.0/8, ::1", Some(Fate::Dropped)),
            ("CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS", "10.0.0.0/8 proxy", None),
            ("MITMPROXY_EXTRA_PORTS", "", Some(Fate::Dropped)),
            ("MITMPROXY_EXTRA_PORTS", "8443", None),
            ("DENY_WEBHOOK", "http://x", None),
            ("TOKEN", "x", None),
            ("MODE", "dns", None),
            ("", "x", None),
        ] {
            let key = format!("{PREFIX}{name}");
            assert_eq!(admit(&key, value, &mut VaultTerms::default()).ok(), fate, "{key}={value}");
        }
    }

    #[test]
    fn what_is_asked_of_the_vault_is_put_down() {
        let mut terms = VaultTerms::default();
        for (name, value) in [
            ("REQUIRE_TLS", "true"),
            ("REQUIRE_SCOPED_MATCH", "Yes"),
            ("TRUSTED_PROXY_CIDRS", " 10.0.0.0/8 , 192.0.2.1,"),
        ] {
            admit(&format!("{PREFIX}CREDENTIAL_VAULT_{name}"), value, &mut terms).unwrap();
        }
        assert!(terms.require_tls && terms.require_scoped_match);
        assert_eq!(terms.trusted_proxies, ["10.0.0.0/8", "192.0.2.1"]);
    }
}
