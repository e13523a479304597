//! Where a server of this machine keeps its state.

use std::path::PathBuf;

use crate::env::Environment;

/// Whose server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Root,
    Other,
}

impl User {
    pub(crate) fn current() -> Self {
        if rustix::process::geteuid().is_root() { Self::Root } else { Self::Other }
    }
}

const SYSTEM: &str = "/var/lib/opensandbox";

/// The data directory of a server that `user` starts without naming one.
pub(crate) fn default_for(user: User, environment: &Environment) -> PathBuf {
    if let Some(chosen) = &environment.data_dir {
        return chosen.clone();
    }
    match user {
        User::Root => PathBuf::from(SYSTEM),
        User::Other => of_user(environment).unwrap_or_else(|| PathBuf::from(SYSTEM)),
    }
}

/// Where a client looks for the key of a server on this machine, best guess first.
pub(crate) fn candidates(user: User, environment: &Environment) -> Vec<PathBuf> {
    let mut found = vec![default_for(user, environment)];
    let system = PathBuf::from(SYSTEM);
    if environment.data_dir.is_none() && !found.contains(&system) {
        found.push(system);
    }
    found
}

fn of_user(environment: &Environment) -> Option<PathBuf> {
    let data_home = environment.data_home.clone();
    let data_home = data_home.or_else(|| Some(environment.home.as_ref()?.join(".local/share")))?;
    Some(data_home.join("opensandbox"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_home() -> Environment {
        Environment { home: Some("/home/ada".into()), ..Environment::default() }
    }

    #[test]
    fn root_and_users_have_their_own_places() {
        let dir = |user, environment: &Environment| default_for(user, environment);
        assert_eq!(dir(User::Root, &of_home()), PathBuf::from("/var/lib/opensandbox"));
        assert_eq!(
            dir(User::Other, &of_home()),
            PathBuf::from("/home/ada/.local/share/opensandbox")
        );
        let xdg = Environment { data_home: Some("/data".into()), ..of_home() };
        assert_eq!(dir(User::Other, &xdg), PathBuf::from("/data/opensandbox"));
        let chosen = Environment { data_dir: Some("/srv/osb".into()), ..of_home() };
        assert_eq!(dir(User::Root, &chosen), PathBuf::from("/srv/osb"));
    }

    #[test]
    fn a_user_may_also_use_the_servers_of_root() {
        assert_eq!(
            candidates(User::Other, &of_home()),
            [
                PathBuf::from("/home/ada/.local/share/opensandbox"),
                PathBuf::from("/var/lib/opensandbox")
            ]
        );
        assert_eq!(candidates(User::Root, &of_home()), [PathBuf::from("/var/lib/opensandbox")]);
    }
}
