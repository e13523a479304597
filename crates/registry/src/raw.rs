//! Registries, as the configuration file has them.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use osb_core::Chain;
use osb_sys::fs;
use serde::Deserialize;

use crate::{
    LoginSettings, Origin, Reference, RegistryError, RegistrySettings, Settings, Transport,
};

/// The most mirrors of one registry.
const MOST_MIRRORS: usize = 16;

/// A table `[images.registries."NAME"]`, as written. A registry that has one may be at a private
/// address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawRegistry {
    /// Whether it is spoken with without TLS. Since 0.1.
    #[serde(default)]
    pub insecure: bool,
    /// A file with the certificates of authorities, as PEM, that this registry is believed by beside
    /// the others; none if absent. Since 0.1.
    pub ca: Option<PathBuf>,
    /// Who is asked before it, in this order: `host[:port]`, or with `http://` before it. Since 0.1.
    #[serde(default)]
    pub mirrors: Vec<String>,
}

impl Settings {
    /// What the tables say; the rest is as it is if nobody says anything.
    pub fn read(raw: &BTreeMap<String, RawRegistry>) -> Result<Self, RegistryError> {
        let mut registries = BTreeMap::new();
        for (name, raw) in raw {
            let wrong = |problem: String| {
                RegistryError::Settings(format!(
                    "images.registries cannot have {name:?}: {problem}"
                ))
            };
            // As it is in the names of images. What has no dot and no port would be no registry there.
            let known = Reference::parse(&format!("{name}/x")).ok().filter(|reference| {
                reference.registry() != "docker.io" || name.ends_with("docker.io")
            });
            let known = known.filter(|_| !name.contains('/')).ok_or_else(|| {
                wrong(
                    "write it as it is in the names of images: a host, and perhaps a port"
                        .to_owned(),
                )
            })?;
            let registry = raw.check().map_err(wrong)?;
            if registries.insert(known.registry().to_owned(), registry).is_some() {
                return Err(wrong("there is another table for it".to_owned()));
            }
        }
        Ok(Self { registries, ..Self::default() })
    }
}

impl RawRegistry {
    fn check(&self) -> Result<RegistrySettings, String> {
        let transport = match (self.insecure, &self.ca) {
            (true, Some(_)) => return Err("it is insecure, and then nobody asks its ca".to_owned()),
            (true, None) => Transport::Plain,
            (false, ca) => {
                let read = |path: &PathBuf| {
                    let content =
                        fs::read_small(path).map_err(|error| Chain(&error).to_string())?;
                    String::from_utf8(content).map_err(|_| format!("{} is not PEM", path.display()))
                };
                Transport::Tls { ca: ca.as_ref().map(read).transpose()? }
            }
        };
        if self.mirrors.len() > MOST_MIRRORS {
            return Err(format!("it has more than {MOST_MIRRORS} mirrors"));
        }
        let mirrors = self.mirrors.iter().map(|mirror| Origin::parse(mirror));
        let mirrors = mirrors.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        Ok(RegistrySettings { transport, mirrors })
    }
}

impl LoginSettings {
    /// Where Docker looks: in its directory of the user's home, unless `DOCKER_CONFIG` names another
    /// one, and for helpers in `PATH`.
    pub fn of_user(
        home: Option<&Path>,
        docker_config: Option<&Path>,
        path: Option<&OsStr>,
    ) -> Self {
        let own = home.map(|home| home.join(".docker"));
        let directory = docker_config.map(Path::to_owned).or(own);
        let helpers = path.into_iter().flat_map(std::env::split_paths);
        let home = home.and_then(Path::to_str).map(|home| ("HOME".to_owned(), home.to_owned()));
        let path = path.and_then(OsStr::to_str).map(|path| ("PATH".to_owned(), path.to_owned()));
        Self {
            config: directory.map(|directory| directory.join("config.json")),
            helpers: helpers.filter(|directory| directory.is_absolute()).collect(),
            variables: home.into_iter().chain(path).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[(&str, RawRegistry)]) -> Result<Settings, String> {
        let raw = entries.iter().map(|(name, raw)| ((*name).to_owned(), raw.clone())).collect();
        Settings::read(&raw).map_err(|error| error.to_string())
    }

    fn mirrors(mirrors: &[&str]) -> RawRegistry {
        let mirrors = mirrors.iter().map(|mirror| (*mirror).to_owned()).collect();
        RawRegistry { mirrors, ..RawRegistry::default() }
    }

    #[test]
    fn tables_are_about_the_registries_of_images() {
        let insecure = RawRegistry { insecure: true, ..RawRegistry::default() };
        let settings = read(&[
            ("index.docker.io", mirrors(&["mirror.test", "http://10.0.0.1:5000"])),
            ("LocalHost:5000", insecure),
        ]);
        let registries = settings.unwrap().registries;
        assert_eq!(registries["localhost:5000"].transport, Transport::Plain);
        let shown: Vec<_> =
            registries["docker.io"].mirrors.iter().map(|it| format!("{it:?}")).collect();
        assert_eq!(shown, ["https://mirror.test", "http://10.0.0.1:5000"]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let ca = directory.path().join("ca.pem");
        let with_ca =
            |insecure| RawRegistry { insecure, ca: Some(ca.clone()), mirrors: Vec::new() };
        for (entries, why) in [
            (vec![("hub", RawRegistry::default())], "a host"),
            (vec![("https://r.test", RawRegistry::default())], "a host"),
            (vec![("r.test/team", RawRegistry::default())], "a host"),
            (vec![("r.test", mirrors(&["m.test/path"]))], "address of a registry"),
            (vec![("r.test", mirrors(&["m.test"; 17]))], "more than 16"),
            (vec![("r.test", mirrors(&[])), ("R.test", mirrors(&[]))], "another table"),
            (vec![("r.test", with_ca(true))], "insecure"),
            (vec![("r.test", with_ca(false))], "ca.pem"),
        ] {
            let error = read(&entries).unwrap_err();
            assert!(error.contains("images.registries") && error.contains(why), "{error}");
        }
        fs::write(&ca, "some text").unwrap();
        let settings = read(&[("r.test", with_ca(false))]).unwrap();
        let error = crate::Client::new(settings, crate::Guard::new(|_| true)).unwrap_err();
        assert!(error.to_string().contains("no certificate"), "{error}");
    }

    #[test]
    fn logins_are_where_docker_keeps_them() {
        let home = Path::new("/home/me");
        let of_home = LoginSettings::of_user(Some(home), None, Some(OsStr::new("/bin:x:/usr/bin")));
        assert_eq!(of_home.config, Some(home.join(".docker/config.json")));
        assert_eq!(of_home.helpers, [Path::new("/bin"), Path::new("/usr/bin")]);
        let named = LoginSettings::of_user(Some(home), Some(Path::new("/etc/docker-auth")), None);
        assert_eq!(named.config, Some(PathBuf::from("/etc/docker-auth/config.json")));
        assert_eq!(LoginSettings::of_user(None, None, None).config, None);
    }
}
