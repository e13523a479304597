//! The tables `[[pool]]` of the configuration file.

use std::collections::{BTreeMap, HashSet};

use osb_api::execd::languages::{GO, JAVA, JAVASCRIPT, PYTHON, TYPESCRIPT};
use osb_core::{ImageName, agent::CodeAhead};
use osb_native::PoolConfig;
use serde::Deserialize;

use crate::failure::Failure;

/// The most sandboxes that one pool keeps started.
const LARGEST: usize = 1000;

/// A pool as operators write it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawPool {
    /// The image whose sandboxes are kept started. Since 0.1.
    image: String,
    /// How many of them. Since 0.1.
    size: usize,
    /// Languages of which an interpreter runs in each of them. Since 0.1.
    #[serde(default)]
    code: Vec<String>,
    /// Modules of Python that its interpreter has imported. Since 0.1.
    #[serde(default)]
    imports: Vec<String>,
    /// Variables that those who ask are expected to bring, for interpreters to have them from their
    /// start. Since 0.1.
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// Languages whose interpreters take their time.
const LANGUAGES: [&str; 5] = [PYTHON, JAVASCRIPT, TYPESCRIPT, JAVA, GO];

/// The pools, if every one of them can be kept.
pub(crate) fn checked(raw: Vec<RawPool>) -> Result<Vec<PoolConfig>, Failure> {
    let mut images = HashSet::new();
    for RawPool { image, size, code, imports, env } in &raw {
        if image.is_empty() {
            return Err(Failure::Usage("a pool needs the name of an image".to_owned()));
        }
        if !(1..=LARGEST).contains(size) {
            return Err(Failure::Usage(format!(
                "the size of the pool of {image} must be from 1 to {LARGEST}"
            )));
        }
        if !images.insert(image) {
            return Err(Failure::Usage(format!("{image} has more than one pool")));
        }
        check_code(code, imports, env)
            .map_err(|why| Failure::Usage(format!("in the pool of {image}: {why}")))?;
    }
    let pool = |RawPool { image, size, code: languages, imports, env }| PoolConfig {
        image: ImageName::new(image),
        size,
        code: CodeAhead { languages, imports },
        env,
    };
    Ok(raw.into_iter().map(pool).collect())
}

/// What interpreters are started with, if they can be.
fn check_code(
    code: &[String],
    imports: &[String],
    env: &BTreeMap<String, String>,
) -> Result<(), String> {
    if let Some(unknown) = code.iter().find(|language| !LANGUAGES.contains(&language.as_str())) {
        let known = LANGUAGES.join(", ");
        return Err(format!("`code` has {unknown:?}; there are: {known}"));
    }
    if !imports.is_empty() && !code.iter().any(|language| language == PYTHON) {
        return Err(format!("`imports` are of {PYTHON}, which `code` does not have"));
    }
    if let Some(wrong) = imports.iter().find(|name| !is_module(name)) {
        return Err(format!("`imports` has {wrong:?}, which is no name of a module"));
    }
    if code.is_empty() && !env.is_empty() {
        return Err("`env` is for the interpreters of `code`, which has none".to_owned());
    }
    let is_wrong = |(name, value): &(&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    match env.iter().find(is_wrong) {
        Some((name, _)) => Err(format!("`env` has {name:?}, which no program can have")),
        None => Ok(()),
    }
}

/// Whether this is the name of a module of Python, within packages perhaps.
fn is_module(name: &str) -> bool {
    name.split('.').all(|part| {
        !part.is_empty()
            && !part.starts_with(|first: char| first.is_ascii_digit())
            && part.chars().all(|each| each == '_' || each.is_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pools: &[(&str, usize)]) -> Result<Vec<PoolConfig>, Failure> {
        let raw = |(image, size): &(&str, usize)| {
            toml::from_str(&format!("image = {image:?}\nsize = {size}")).unwrap()
        };
        checked(pools.iter().map(raw).collect())
    }

    fn with(more: &str) -> Result<PoolConfig, Failure> {
        let raw = toml::from_str(&format!("image = 'host'\nsize = 1\n{more}")).unwrap();
        checked(vec![raw]).map(|mut pools| pools.remove(0))
    }

    #[test]
    fn a_pool_can_have_interpreters_that_there_are() {
        let pool =
            with("code = ['python', 'go']\nimports = ['numpy', 'a.b_1']\nenv.A = '1'").unwrap();
        assert_eq!((pool.code.languages.len(), pool.code.imports.len(), pool.env.len()), (2, 2, 1));
        for (wrong, why) in [
            ("code = ['bash']", "bash"),
            ("code = ['go']\nimports = ['numpy']", "python"),
            ("code = ['python']\nimports = ['os; exit()']", "no name of a module"),
            ("code = ['python']\nimports = ['']", "no name of a module"),
            ("env.A = '1'", "has none"),
            ("code = ['python']\nenv.'A=B' = '1'", "A=B"),
        ] {
            let Err(Failure::Usage(said)) = with(wrong) else { panic!("{wrong}") };
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_pool_has_an_image_of_its_own_and_a_size_within_bounds() {
        assert_eq!(check(&[("host", 1), ("python:3.12", 1000)]).unwrap().len(), 2);
        for wrong in [&[("", 1)][..], &[("host", 0)], &[("host", 1001)], &[("a", 1), ("a", 2)]] {
            assert!(matches!(check(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
