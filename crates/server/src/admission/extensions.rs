use std::{collections::BTreeMap, ops::RangeInclusive};

use jiff::Timestamp;
use osb_api::codes;
use osb_core::{IdleAction, IdleRule};

use crate::error::ApiError;

/// Extensions with this prefix are kept and shown.
const ECHOED: &str = "opensandbox.extensions.";
const MAX_BYTES: usize = 64 * 1024;

const RENEW: &str = "access.renew.extend.seconds";
const RENEWALS: RangeInclusive<u32> = 300..=86_400;
/// Extensions with this prefix are about sandboxes that nobody uses.
const IDLE: &str = "opensandbox.extensions.idle.";
const IDLE_SECONDS: &str = "opensandbox.extensions.idle.timeout.seconds";
const IDLE_ACTION: &str = "opensandbox.extensions.idle.action";
const IDLE_TIMES: RangeInclusive<u32> = 60..=86_400;

/// What the extensions of a request ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    /// Those that answers show again.
    pub(super) echoed: BTreeMap<String, String>,
    pub(super) renew_seconds: Option<u32>,
    pub(super) idle: Option<IdleRule>,
}

/// Refuses what would change a sandbox in a way that this server cannot, and keeps what answers
/// echo. Others mean nothing here, as on every server that does not know them.
pub(super) fn admit(extensions: BTreeMap<String, String>) -> Result<Extensions, ApiError> {
    if extensions.contains_key("poolRef") {
        return Err(ApiError::invalid_as(
            codes::UNSUPPORTED_POOL_REF,
            "a request cannot choose a pool: leave extensions.poolRef out",
        ));
    }
    if extensions.contains_key("bootstrap.execd.isolation") {
        return Err(ApiError::unsupported("bootstrap.execd.isolation is not supported yet"));
    }
    let renew_seconds = seconds(&extensions, RENEW, RENEWALS)?;
    let idle = idle(&extensions)?;
    let total: usize = extensions.iter().map(|(key, value)| key.len() + value.len()).sum();
    if total > MAX_BYTES {
        return Err(ApiError::invalid(format!(
            "extensions are larger than {MAX_BYTES} bytes altogether"
        )));
    }
    let echoed = extensions.into_iter().filter(|(key, _)| key.starts_with(ECHOED)).collect();
    Ok(Extensions { echoed, renew_seconds, idle })
}

impl Extensions {
    /// Refuses what the rest of the request, or the runtime, leaves without effect.
    pub(super) fn check(
        &self,
        expires_at: Option<Timestamp>,
        can_pause: bool,
    ) -> Result<(), ApiError> {
        if self.renew_seconds.is_some() && expires_at.is_none() {
            return Err(ApiError::invalid(format!(
                "{RENEW} puts off an expiry, and a sandbox without a timeout has none"
            )));
        }
        if self.idle.is_some_and(|rule| rule.action == IdleAction::Pause) && !can_pause {
            return Err(ApiError::unsupported(format!(
                "the runtime of this server cannot pause sandboxes: set {IDLE_ACTION} to delete"
            )));
        }
        Ok(())
    }
}

fn idle(extensions: &BTreeMap<String, String>) -> Result<Option<IdleRule>, ApiError> {
    let known = [IDLE_SECONDS, IDLE_ACTION];
    let mut about = extensions.keys().filter(|key| key.starts_with(IDLE));
    if let Some(unknown) = about.find(|key| !known.contains(&key.as_str())) {
        let unknown: String = unknown.chars().take(64).collect();
        return Err(ApiError::invalid(format!(
            "{unknown:?} is no extension: there are {IDLE_SECONDS} and {IDLE_ACTION}"
        )));
    }
    let action = match extensions.get(IDLE_ACTION).map(String::as_str) {
        None | Some("pause") => IdleAction::Pause,
        Some("delete") => IdleAction::Remove,
        Some(_) => {
            return Err(ApiError::invalid(format!("{IDLE_ACTION} must be pause or delete")));
        }
    };
    match seconds(extensions, IDLE_SECONDS, IDLE_TIMES)? {
        Some(seconds) => Ok(Some(IdleRule { seconds, action })),
        None if extensions.contains_key(IDLE_ACTION) => {
            Err(ApiError::invalid(format!("{IDLE_ACTION} needs {IDLE_SECONDS}")))
        }
        None => Ok(None),
    }
}

fn seconds(
    extensions: &BTreeMap<String, String>,
    key: &str,
    within: RangeInclusive<u32>,
) -> Result<Option<u32>, ApiError> {
    let Some(text) = extensions.get(key) else { return Ok(None) };
    let number = text.trim().parse().ok().filter(|number| within.contains(number));
    number.map(Some).ok_or_else(|| {
        let (least, most) = (within.start(), within.end());
        ApiError::invalid(format!("{key} must be a whole number of {least} to {most}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn only_our_own_prefix_is_echoed() {
        let extensions = all(&[("opensandbox.extensions.team", "a"), ("vendor.hint", "b")]);
        let admitted = admit(extensions).expect("extensions");
        assert_eq!(admitted.echoed, all(&[("opensandbox.extensions.team", "a")]));
        assert_eq!((admitted.renew_seconds, admitted.idle), (None, None));
    }

    #[test]
    fn use_and_idleness_have_their_rules() {
        let admitted = admit(all(&[(RENEW, "300"), (IDLE_SECONDS, " 60 ")])).expect("extensions");
        assert_eq!(admitted.renew_seconds, Some(300));
        assert_eq!(admitted.idle, Some(IdleRule { seconds: 60, action: IdleAction::Pause }));
        assert_eq!(admitted.echoed, all(&[(IDLE_SECONDS, " 60 ")]));
        let deleted = admit(all(&[(IDLE_SECONDS, "86400"), (IDLE_ACTION, "delete")]));
        let rule = IdleRule { seconds: 86_400, action: IdleAction::Remove };
        assert_eq!(deleted.expect("extensions").idle, Some(rule));
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        let later = Some(Timestamp::MAX);
        let renewed = admit(all(&[(RENEW, "300")])).expect("extensions");
        assert!(renewed.check(later, false).is_ok());
        assert!(renewed.check(None, true).is_err());
        let paused = admit(all(&[(IDLE_SECONDS, "60")])).expect("extensions");
        assert!(paused.check(None, true).is_ok());
        assert!(paused.check(later, false).is_err());
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        for pairs in [
            &[("poolRef", "*")][..],
            &[(RENEW, "299")],
            &[(RENEW, "86401")],
            &[(RENEW, "soon")],
            &[(IDLE_SECONDS, "59")],
            &[(IDLE_SECONDS, "86401")],
            &[(IDLE_SECONDS, "-60")],
            &[(IDLE_SECONDS, "60"), (IDLE_ACTION, "explode")],
            &[(IDLE_ACTION, "pause")],
            &[("opensandbox.extensions.idle.timeout", "60")],
            &[("bootstrap.execd.isolation", "enable")],
        ] {
            assert!(admit(all(pairs)).is_err(), "{pairs:?} was accepted");
        }
    }
}
