//! The table `[images]` of the configuration file.

use std::collections::BTreeMap;

use osb_core::Memory;
use osb_image::{Images, Limits, Remote};
use osb_registry::{Client, Digest, Guard, LoginSettings, RawRegistry, Reference};
use serde::Deserialize;

use crate::{env::Environment, failure::Failure};

/// The least that an image may be limited to.
const SMALLEST: Memory = Memory::from_bytes(1 << 20);
/// The image that every server has.
const HOST: &str = "host";

/// What operators write about images.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawImages {
    /// Names that clients may ask for, and the image that they get. Since 0.1.
    #[serde(default)]
    aliases: BTreeMap<String, String>,
    /// What is to be known about registries, by their names. Since 0.1.
    #[serde(default)]
    registries: BTreeMap<String, RawRegistry>,
    /// The most that an image may take when it is unpacked, such as `20Gi`; 64 GiB if absent.
    /// Since 0.1.
    max_image_size: Option<String>,
}

/// What was checked of it.
#[derive(Debug)]
pub(crate) struct ImagesConfig {
    /// For whoever keeps the images.
    pub(crate) store: osb_image::Settings,
    registries: osb_registry::Settings,
}

impl RawImages {
    pub(crate) fn check(self) -> Result<ImagesConfig, Failure> {
        let registries = osb_registry::Settings::read(&self.registries);
        let registries = registries.map_err(|error| Failure::Usage(error.to_string()))?;
        let limits = limits(self.max_image_size.as_deref())?;
        let store = osb_image::Settings { aliases: aliases(self.aliases)?, limits };
        Ok(ImagesConfig { store, registries })
    }
}

impl ImagesConfig {
    /// What pulls and pushes the images of this machine. Registries at public addresses are reached,
    /// and those that the operator has named.
    pub(crate) fn remote(
        self,
        images: Images,
        extra_ca: Option<&str>,
        environment: &Environment,
    ) -> Result<Remote, Failure> {
        let Environment { home, docker_config, path, .. } = environment;
        let settings = osb_registry::Settings {
            extra_ca: extra_ca.map(str::to_owned),
            logins: LoginSettings::of_user(
                home.as_deref(),
                docker_config.as_deref(),
                path.as_deref(),
            ),
            ..self.registries
        };
        let client = Client::new(settings, Guard::new(osb_egress::is_public));
        let client = client.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Remote::new(images, client))
    }
}

fn limits(largest: Option<&str>) -> Result<Limits, Failure> {
    let Some(largest) = largest else { return Ok(Limits::default()) };
    let wrong = |problem: String| Failure::Usage(format!("images.max-image-size: {problem}"));
    let largest: Memory = largest.parse().map_err(|error| wrong(format!("{error}")))?;
    if largest.bytes() < SMALLEST.bytes() {
        return Err(wrong("it must be 1Mi at least".to_owned()));
    }
    let bytes = largest.bytes();
    Ok(Limits { layer: bytes, image: bytes, archive: bytes, ..Limits::default() })
}

/// Each alias leads to an image, and no two are the same name.
fn aliases(raw: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Failure> {
    let wrong = |alias: &str, problem: String| {
        Failure::Usage(format!("images.aliases cannot have {alias:?}: {problem}"))
    };
    let mut known: BTreeMap<Reference, &str> = BTreeMap::new();
    for alias in raw.keys() {
        let name = Reference::parse(alias).map_err(|error| wrong(alias, error.to_string()))?;
        if alias == HOST {
            return Err(wrong(alias, "that is the programs of this host, and stays so".to_owned()));
        }
        if let Some(other) = known.insert(name, alias) {
            return Err(wrong(alias, format!("it is the same name as {other:?}")));
        }
    }
    for (alias, target) in &raw {
        if target == HOST || Digest::parse(target).is_ok() {
            continue;
        }
        let name = Reference::parse(target).map_err(|error| wrong(alias, error.to_string()))?;
        if known.contains_key(&name) {
            let problem = format!("{target:?} is an alias too: name the image that it leads to");
            return Err(wrong(alias, problem));
        }
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<ImagesConfig, Failure> {
        let raw: RawImages =
            toml::from_str(text).map_err(|error| Failure::Usage(error.to_string()))?;
        raw.check()
    }

    #[test]
    fn names_that_published_clients_ask_for_can_be_images_of_this_machine() {
        let config = check(
            r#"
            max-image-size = "2Gi"
            [aliases]
            "opensandbox/code-interpreter:v1.0.1" = "code-interpreter"
            "registry.example.com/opensandbox/code-interpreter:v1.0.1" = "code-interpreter"
            "python:3.12" = "host"
            [registries."docker.io"]
            mirrors = ["mirror.example.com", "http://10.0.0.5:5000"]
            [registries."localhost:5000"]
            insecure = true
            "#,
        );
        let config = config.unwrap();
        assert_eq!(config.store.aliases.len(), 3);
        assert_eq!((config.store.limits.image, config.store.limits.layer), (2 << 30, 2 << 30));
        assert_eq!(config.registries.registries.len(), 2);
        assert_eq!(check("").unwrap().store, osb_image::Settings::default());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, why) in [
            ("registrys = {}", "registrys"),
            ("max-image-size = 'all'", "max-image-size"),
            ("max-image-size = '4Ki'", "1Mi"),
            ("aliases = { 'UPPER' = 'host' }", "lower case"),
            ("aliases = { 'a' = 'b c' }", "b c"),
            ("aliases = { 'host' = 'debian' }", "stays so"),
            ("aliases = { 'a' = 'b', 'docker.io/library/a:latest' = 'c' }", "same name"),
            ("aliases = { 'a' = 'b', 'b' = 'c' }", "is an alias too"),
            ("[registries.'r.test']\ninsecure = true\nca = '/x'", "insecure"),
            ("[registries.'r.test']\nmirors = []", "mirors"),
        ] {
            match check(text) {
                Err(Failure::Usage(said)) => assert!(said.contains(why), "{text:?}: {said}"),
                other => panic!("{text:?} came to {other:?}"),
            }
        }
    }
}
