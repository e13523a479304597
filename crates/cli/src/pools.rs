//! The tables `[[pool]]` of the configuration file.

use std::collections::HashSet;

use osb_core::ImageName;
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
}

/// The pools, if every one of them can be kept.
pub(crate) fn checked(raw: Vec<RawPool>) -> Result<Vec<PoolConfig>, Failure> {
    let mut images = HashSet::new();
    for RawPool { image, size } in &raw {
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
    }
    let pool = |RawPool { image, size }| PoolConfig { image: ImageName::new(image), size };
    Ok(raw.into_iter().map(pool).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pools: &[(&str, usize)]) -> Result<Vec<PoolConfig>, Failure> {
        let raw = |(image, size): &(&str, usize)| RawPool { image: (*image).into(), size: *size };
        checked(pools.iter().map(raw).collect())
    }

    #[test]
    fn a_pool_has_an_image_of_its_own_and_a_size_within_bounds() {
        assert_eq!(check(&[("host", 1), ("python:3.12", 1000)]).unwrap().len(), 2);
        for wrong in [&[("", 1)][..], &[("host", 0)], &[("host", 1001)], &[("a", 1), ("a", 2)]] {
            assert!(matches!(check(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
