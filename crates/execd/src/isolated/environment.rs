//! Which variables a session sees.

use std::collections::BTreeMap;

use osb_api::execd::{EnvMode, EnvPassthrough, IsolatedProfile};

const SECRET_ENDS: [&str; 4] = ["_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD"];
const SECRET_BEGINNINGS: [&str; 5] = ["AWS_", "ALI_", "ALIYUN_", "K8S_", "KUBE_"];

/// Leaves of `variables` what a session may see. What a caller names as allowed is, whatever its
/// name looks like.
pub(super) fn passed(
    mut variables: BTreeMap<String, String>,
    profile: IsolatedProfile,
    passthrough: Option<&EnvPassthrough>,
) -> BTreeMap<String, String> {
    let named = |name: &String, keys: &[String]| keys.contains(name);
    variables.retain(|name, _| match passthrough {
        Some(EnvPassthrough { mode: EnvMode::Allow, keys }) => {
            named(name, keys) || ALWAYS.contains(&name.as_str())
        }
        Some(EnvPassthrough { mode: EnvMode::Deny, keys }) if named(name, keys) => false,
        Some(_) | None => match profile {
            IsolatedProfile::Strict => !looks_secret(name),
            IsolatedProfile::Balanced => true,
        },
    });
    variables
}

/// Without these hardly any program works.
const ALWAYS: [&str; 5] = ["HOME", "LANG", "LC_CTYPE", "PATH", "USER"];

fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_ENDS.iter().any(|end| name.ends_with(end))
        || SECRET_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(profile: IsolatedProfile, passthrough: Option<(EnvMode, &[&str])>) -> Vec<String> {
        let all = ["PATH", "OPENAI_API_KEY", "github_token", "AWS_REGION", "EDITOR", "TOKENS"];
        let variables = all.map(|name| (name.to_owned(), String::new())).into();
        let passthrough = passthrough.map(|(mode, keys)| EnvPassthrough {
            mode,
            keys: keys.iter().map(|&key| key.to_owned()).collect(),
        });
        passed(variables, profile, passthrough.as_ref()).into_keys().collect()
    }

    #[test]
    fn the_strict_profile_keeps_secrets_back() {
        assert_eq!(names(IsolatedProfile::Strict, None), ["EDITOR", "PATH", "TOKENS"]);
        assert_eq!(names(IsolatedProfile::Balanced, None).len(), 6);
    }

    #[test]
    fn a_caller_says_which_variables_pass() {
        let allow = Some((EnvMode::Allow, ["OPENAI_API_KEY"].as_slice()));
        assert_eq!(names(IsolatedProfile::Strict, allow), ["OPENAI_API_KEY", "PATH"]);
        let deny = Some((EnvMode::Deny, ["EDITOR", "PATH"].as_slice()));
        assert_eq!(names(IsolatedProfile::Strict, deny), ["TOKENS"]);
    }
}
