use crate::config::{self, ConfigError};

/// The longest domain below which a whole label of 63 bytes has room (RFC 1035, 2.3.4).
const LONGEST: usize = 253 - 64;

/// The domain whose hosts are ports of sandboxes: `{port}-{id}.<domain>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayDomain {
    /// In lower case, without a dot at its end.
    name: String,
    /// The port that clients have to name as well, if it is not the usual one.
    port: Option<u16>,
}

impl GatewayDomain {
    pub(crate) fn parse(text: &str) -> Result<Self, ConfigError> {
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port.parse::<u16>().ok().filter(|port| *port != 0))),
            None => (text, None),
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let is_name = name.len() <= LONGEST && name.split('.').all(is_label);
        match port {
            Some(None) => Err(unfit(text)),
            _ if !is_name || name.parse::<std::net::IpAddr>().is_ok() => Err(unfit(text)),
            port => Ok(Self { name, port: port.flatten() }),
        }
    }

    /// What stands before the domain and its dot, if the host lies below it.
    pub(super) fn below<'a>(&self, host: &'a str) -> Option<&'a str> {
        let name = name_of(host);
        let (before, domain) = name.split_at_checked(name.len().checked_sub(self.name.len())?)?;
        before.strip_suffix('.').filter(|_| domain.eq_ignore_ascii_case(&self.name))
    }

    /// Refuses a name for the server itself that would be one of a sandbox.
    pub(crate) fn check_public(&self, public: &str) -> Result<(), ConfigError> {
        let host = public.split('/').next().unwrap_or_default();
        if config::is_host(host) && self.below(host).is_none() {
            return Ok(());
        }
        Err(ConfigError::Invalid(format!(
            "public-host must not lie below gateway-domain, whose hosts are sandboxes: {public:?} does"
        )))
    }

    /// The address of what a label names.
    pub(crate) fn address(&self, label: &str) -> String {
        match self.port {
            Some(port) => format!("{label}.{}:{port}", self.name),
            None => format!("{label}.{}", self.name),
        }
    }
}

fn unfit(text: &str) -> ConfigError {
    ConfigError::Invalid(format!(
        "gateway-domain must be domain[:port], such as boxes.example.com, and {text:?} is not"
    ))
}

/// The host without its port and without the dot that some write at its end.
fn name_of(host: &str) -> &str {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.strip_suffix('.').unwrap_or(name)
}

fn is_label(label: &str) -> bool {
    let plain = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    plain && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_domain_is_a_domain() {
        for text in ["localhost", "boxes.example.com", "Boxes.Example.com.", "localhost:8080"] {
            assert!(GatewayDomain::parse(text).is_ok(), "{text:?}");
        }
        let long = format!("{}.com", ["a"; 120].join("."));
        for text in
            ["", ".", "a..b", "*.a.b", "-a.b", "a b", "a/b", "127.0.0.1", "a:0", "a:b", &long]
        {
            assert!(GatewayDomain::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn the_server_itself_is_not_below_it() {
        let domain = GatewayDomain::parse("boxes.example.com").unwrap();
        for public in ["boxes.example.com/api", "api.example.com:443", "127.0.0.1"] {
            assert!(domain.check_public(public).is_ok(), "{public}");
        }
        assert!(domain.check_public("api.boxes.example.com/x").is_err());
        assert_eq!(domain.address("x"), "x.boxes.example.com");
        assert_eq!(GatewayDomain::parse("localhost:81").unwrap().address("x"), "x.localhost:81");
    }
}
