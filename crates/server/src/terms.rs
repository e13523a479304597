use http::HeaderMap;
use osb_egress::vault::{BadProxy, Proxies, Scope, Transport};
use osb_gateway::Caller;
use serde::{Deserialize, Serialize};

/// What the maker of a sandbox asks of whoever fills its vault, beside what the operator asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct VaultTerms {
    pub(crate) require_tls: bool,
    /// Addresses and ranges.
    pub(crate) trusted_proxies: Vec<String>,
    pub(crate) require_scoped_match: bool,
}

impl VaultTerms {
    pub(crate) fn check(&self) -> Result<Proxies, BadProxy> {
        Proxies::parse(self.trusted_proxies.iter().map(String::as_str))
    }

    /// Whether a secret may come like this.
    pub(crate) fn admits(&self, caller: &Caller, headers: &HeaderMap) -> bool {
        let proxies = || self.check().unwrap_or_default();
        let transport = if self.require_tls { Transport::Tls(proxies()) } else { Transport::Any };
        transport.admits(caller.address, &caller.scheme, headers)
    }

    pub(crate) fn scope(&self) -> Scope {
        if self.require_scoped_match { Scope::Requests } else { Scope::Hosts }
    }
}
