use std::collections::BTreeMap;

use osb_api::SandboxId;

use super::{
    egress_env::{self, Fate},
    entrypoint::MAX_ARGUMENT,
};
use crate::{error::ApiError, terms::VaultTerms};

/// Leaves room beside the arguments in what the kernel takes altogether.
const MAX_ENVIRONMENT: usize = 512 * 1024;

pub(super) fn admit(
    env: BTreeMap<String, Option<String>>,
    id: SandboxId,
) -> Result<(BTreeMap<String, String>, VaultTerms), ApiError> {
    let mut total = 0;
    let mut terms = VaultTerms::default();
    let mut admitted = BTreeMap::new();
    for (key, value) in env {
        let Some(value) = value else { continue };
        check(&key, &value)?;
        let is_egress = key.starts_with(egress_env::PREFIX);
        if is_egress && egress_env::admit(&key, &value, &mut terms)? == Fate::Dropped {
            continue;
        }
        total += key.len() + value.len() + 2;
        admitted.insert(key, value);
    }
    if total > MAX_ENVIRONMENT {
        return Err(ApiError::invalid(format!(
            "env is larger than {MAX_ENVIRONMENT} bytes altogether"
        )));
    }
    admitted.insert("OPENSANDBOX_ID".to_owned(), id.to_string());
    Ok((admitted, terms))
}

fn check(key: &str, value: &str) -> Result<(), ApiError> {
    let shown: String = key.chars().take(64).collect();
    if key.is_empty() || key.contains(['=', '\0']) {
        return Err(ApiError::invalid(format!(
            "env key {shown:?} must not be empty and must not contain '=' or NUL"
        )));
    }
    if value.contains('\0') {
        return Err(ApiError::invalid(format!("the value of env key {shown:?} contains NUL")));
    }
    if key.len() + value.len() + 1 > MAX_ARGUMENT {
        return Err(ApiError::invalid(format!(
            "env key {shown:?} is longer, with its value, than the kernel takes"
        )));
    }
    if key == "OPENSANDBOX_LIFECYCLE" {
        return Err(ApiError::invalid(format!("env key {shown:?} is reserved")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, value: &str) -> BTreeMap<String, Option<String>> {
        BTreeMap::from([(key.to_owned(), Some(value.to_owned()))])
    }

    #[test]
    fn a_null_value_leaves_the_key_out_and_the_id_is_added() {
        let id = SandboxId::random();
        let mut env = one("A", "a=b");
        env.insert("B".to_owned(), None);
        let (env, _) = admit(env, id).expect("an environment");
        let expected = [("A", "a=b".to_owned()), ("OPENSANDBOX_ID", id.to_string())];
        assert_eq!(env, expected.map(|(k, v)| (k.to_owned(), v)).into());
    }

    #[test]
    fn what_the_kernel_or_we_cannot_take_is_refused() {
        let long = "x".repeat(MAX_ARGUMENT);
        for (key, value) in [
            ("", "x"),
            ("A=B", "x"),
            ("A\0", "x"),
            ("A", "x\0"),
            ("A", long.as_str()),
            ("OPENSANDBOX_LIFECYCLE", "{}"),
            ("OPENSANDBOX_EGRESS_TOKEN", "x"),
        ] {
            assert!(admit(one(key, value), SandboxId::random()).is_err(), "{key:?} was accepted");
        }
    }
}
