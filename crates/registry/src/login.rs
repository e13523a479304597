use std::fmt;

use secrecy::SecretString;

/// Who asks a registry, and how they prove it.
///
/// The password is a token where a registry gives out tokens. It is overwritten when it is dropped,
/// and never shown.
#[derive(Clone)]
pub struct Login {
    pub username: String,
    pub password: SecretString,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("username", &self.username).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let login = Login { username: "u".to_owned(), password: "hunter2".into() };
        let shown = format!("{login:?}");
        assert!(shown.contains("\"u\"") && !shown.contains("hunter2"), "{shown}");
    }
}
