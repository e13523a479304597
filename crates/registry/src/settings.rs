use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf, time::Duration};

use crate::{Origin, Reference, Scheme};

/// What the operator says about registries.
#[derive(Debug, Clone)]
pub struct Settings {
    /// By the names that references have, such as `docker.io` or `localhost:5000`.
    pub registries: BTreeMap<String, RegistrySettings>,
    /// Authorities that are trusted beside those of the host, as PEM.
    pub extra_ca: Option<String>,
    pub logins: LoginSettings,
    /// How long until somebody is connected, and has proved who they are.
    pub connect_timeout: Duration,
    /// How long until an answer begins.
    pub answer_timeout: Duration,
    /// How long nothing may arrive of content that does.
    pub stall_timeout: Duration,
    /// How often one thing is asked for if there is hope.
    pub tries: u32,
    /// How many blobs are on their way at a time, from or to one registry.
    pub parallel: NonZeroUsize,
}

/// What the operator says about one registry. One that is mentioned may have a private address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistrySettings {
    pub transport: Transport,
    /// Who is asked first, in this order.
    pub mirrors: Vec<Origin>,
}

/// How a registry is spoken with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    Tls {
        /// Authorities that it is believed by, beside the others, as PEM.
        ca: Option<String>,
    },
    /// Everybody on the way can read and change what is sent.
    Plain,
}

impl Default for Transport {
    fn default() -> Self {
        Self::Tls { ca: None }
    }
}

/// Where logins are found that come with no request.
#[derive(Debug, Clone, Default)]
pub struct LoginSettings {
    /// Docker's `config.json`.
    pub config: Option<PathBuf>,
    /// The directories in which its credential helpers are looked for.
    pub helpers: Vec<PathBuf>,
    /// The environment of credential helpers.
    pub variables: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            registries: BTreeMap::new(),
            extra_ca: None,
            logins: LoginSettings::default(),
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(30),
            tries: 5,
            parallel: NonZeroUsize::new(6).unwrap_or(NonZeroUsize::MIN),
        }
    }
}

impl Settings {
    fn transport(&self, registry: &str) -> Transport {
        self.registries.get(registry).map(|it| it.transport.clone()).unwrap_or_default()
    }

    /// Where a registry listens.
    pub(crate) fn origin(&self, registry: &str) -> Option<Origin> {
        let scheme = match self.transport(registry) {
            Transport::Tls { .. } => Scheme::Https,
            Transport::Plain => Scheme::Http,
        };
        Origin::of_registry(registry, scheme)
    }

    /// Who is asked for an image, in this order; the registry itself is the last.
    pub(crate) fn sources(&self, reference: &Reference) -> Vec<Origin> {
        let settings = self.registries.get(reference.registry());
        let mirrors = settings.into_iter().flat_map(|it| it.mirrors.iter().cloned());
        mirrors.chain(self.origin(reference.registry())).collect()
    }

    /// Everybody whom the operator names: they may have private addresses.
    pub(crate) fn named(&self) -> impl Iterator<Item = Origin> {
        self.registries
            .iter()
            .flat_map(|(name, registry)| registry.mirrors.iter().cloned().chain(self.origin(name)))
    }

    /// The authorities that single hosts are believed by.
    pub(crate) fn authorities(&self) -> impl Iterator<Item = (Origin, &str)> {
        self.registries.iter().filter_map(|(name, registry)| match &registry.transport {
            Transport::Tls { ca: Some(ca) } => Some((self.origin(name)?, ca.as_str())),
            Transport::Tls { ca: None } | Transport::Plain => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_asked_before_the_registry() {
        let mirrors =
            vec![Origin::parse("http://m.test:5000").unwrap(), Origin::parse("n.test").unwrap()];
        let hub = RegistrySettings { mirrors, ..RegistrySettings::default() };
        let plain = RegistrySettings { transport: Transport::Plain, mirrors: Vec::new() };
        let registries = [("docker.io", hub), ("r.test:1", plain)];
        let registries = registries.map(|(name, it)| (name.to_owned(), it)).into();
        let settings = Settings { registries, ..Settings::default() };
        let sources = |name: &str| {
            let sources = settings.sources(&Reference::parse(name).unwrap());
            sources.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            sources("debian"),
            "http://m.test:5000 https://n.test https://registry-1.docker.io"
        );
        assert_eq!(sources("r.test:1/x"), "http://r.test:1");
        assert_eq!(sources("other.test/x"), "https://other.test");
        assert_eq!(settings.named().count(), 4);
    }
}
