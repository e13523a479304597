use std::io::{self, Read};

use opensandbox::api::lifecycle::{ImageAuth, Secret};

use crate::failure::Failure;

/// The longest password that is read.
const LONGEST: u64 = 64 << 10;

/// How to log in to a registry.
#[derive(Debug, clap::Args)]
pub(super) struct Login {
    /// Log in to the registry as this user; without it, as the server does
    #[arg(
        short,
        long,
        value_name = "USER",
        requires = "password_stdin",
        help_heading = "Registry"
    )]
    username: Option<String>,
    /// Read the password or token of that user from standard input
    #[arg(long, requires = "username", help_heading = "Registry")]
    password_stdin: bool,
}

impl Login {
    pub(super) fn read(self) -> Result<Option<ImageAuth>, Failure> {
        self.read_from(io::stdin().lock())
    }

    fn read_from(self, input: impl Read) -> Result<Option<ImageAuth>, Failure> {
        let Some(username) = self.username else { return Ok(None) };
        let mut password = String::new();
        input.take(LONGEST).read_to_string(&mut password).map_err(|source| Failure::Machine {
            doing: "cannot read the password from standard input",
            source: source.into(),
        })?;
        password.truncate(password.trim_end_matches(['\n', '\r']).len());
        if password.is_empty() {
            return Err(Failure::Usage("there is no password in standard input".to_owned()));
        }
        Ok(Some(ImageAuth { username, password: Secret::new(password) }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        login: Login,
    }

    #[test]
    fn a_password_is_what_standard_input_has_but_for_its_end() {
        let login = |input: &str| {
            let line = Line::try_parse_from(["x", "-u", "ada", "--password-stdin"]).unwrap();
            line.login.read_from(input.as_bytes())
        };
        let auth = login(" p w \r\n").unwrap().unwrap();
        assert_eq!((auth.username.as_str(), auth.password.reveal()), ("ada", " p w "));
        assert!(login("\n").is_err());
    }

    #[test]
    fn a_password_never_comes_as_a_flag() {
        for words in
            [&["x", "-u", "ada"][..], &["x", "--password-stdin"], &["x", "--password", "p"]]
        {
            assert!(Line::try_parse_from(words).is_err(), "{words:?}");
        }
        let nobody = Line::try_parse_from(["x"]).unwrap().login;
        assert_eq!(nobody.read_from(io::empty()).unwrap(), None);
    }
}
