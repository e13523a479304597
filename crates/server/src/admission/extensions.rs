use std::collections::BTreeMap;

use osb_api::codes;

use crate::error::ApiError;

/// Extensions with this prefix are kept and shown.
const ECHOED: &str = "opensandbox.extensions.";
const MAX_BYTES: usize = 64 * 1024;

/// Refuses what would change a sandbox in a way that this server cannot, and keeps what answers
/// echo. Others mean nothing here, as on every server that does not know them.
pub(super) fn admit(
    extensions: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ApiError> {
    if extensions.contains_key("poolRef") {
        return Err(ApiError::invalid_as(
            codes::UNSUPPORTED_POOL_REF,
            "a request cannot choose a pool: leave extensions.poolRef out",
        ));
    }
    if let Some(seconds) = extensions.get("access.renew.extend.seconds") {
        return Err(match seconds.trim().parse::<u32>() {
            Ok(300..=86_400) => ApiError::unsupported(
                "access.renew.extend.seconds is not supported yet: call renew-expiration",
            ),
            _ => ApiError::invalid(
                "access.renew.extend.seconds must be a whole number of 300 to 86400",
            ),
        });
    }
    if extensions.contains_key("bootstrap.execd.isolation") {
        return Err(ApiError::unsupported("bootstrap.execd.isolation is not supported yet"));
    }
    let total: usize = extensions.iter().map(|(key, value)| key.len() + value.len()).sum();
    if total > MAX_BYTES {
        return Err(ApiError::invalid(format!(
            "extensions are larger than {MAX_BYTES} bytes altogether"
        )));
    }
    Ok(extensions.into_iter().filter(|(key, _)| key.starts_with(ECHOED)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), value.to_owned())])
    }

    #[test]
    fn only_our_own_prefix_is_echoed() {
        let echoed = one("opensandbox.extensions.team", "a");
        let mut all = echoed.clone();
        all.extend(one("vendor.hint", "b"));
        assert_eq!(admit(all).expect("extensions"), echoed);
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        for (key, value) in [
            ("poolRef", "*"),
            ("access.renew.extend.seconds", "600"),
            ("access.renew.extend.seconds", "10"),
            ("access.renew.extend.seconds", "soon"),
            ("bootstrap.execd.isolation", "enable"),
        ] {
            assert!(admit(one(key, value)).is_err(), "{key}={value} was accepted");
        }
    }
}
