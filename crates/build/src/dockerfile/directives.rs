//! The comments at the top of a Dockerfile that are not comments: `# escape=`, `# syntax=`,
//! `# check=`.

use crate::problem::Fault;

/// What the top of a Dockerfile says about the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directives {
    /// The character that takes the meaning from the next one and continues lines.
    pub escape: char,
    /// The language, as it was written.
    pub syntax: Option<String>,
    /// Which of Docker's lint checks are wanted, as it was written.
    pub check: Option<String>,
}

impl Default for Directives {
    fn default() -> Self {
        Self { escape: '\\', syntax: None, check: None }
    }
}

impl Directives {
    /// Takes one more line from the top. Answers whether the next one may be a directive too.
    pub(super) fn take(&mut self, line: &str) -> Result<bool, Fault> {
        let Some((key, value)) = pair(line) else { return Ok(false) };
        match key.to_ascii_lowercase().as_str() {
            "escape" => self.set_escape(value)?,
            "syntax" => once(&mut self.syntax, "syntax", known_syntax(value)?)?,
            "check" => once(&mut self.check, "check", value)?,
            // A comment that happens to look like one.
            _ => {}
        }
        Ok(true)
    }

    fn set_escape(&mut self, value: &str) -> Result<(), Fault> {
        self.escape = match value {
            "\\" => '\\',
            "`" => '`',
            _ => {
                return Err(Fault::new(format!(
                    "{value} cannot be the escape character: write # escape=\\ or # escape=`"
                )));
            }
        };
        Ok(())
    }
}

fn pair(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.trim_start().strip_prefix('#')?.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    let is_word = key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.chars().all(|c| c.is_ascii_alphanumeric());
    (is_word && !value.is_empty()).then_some((key, value))
}

fn once(place: &mut Option<String>, name: &str, value: &str) -> Result<(), Fault> {
    match place.replace(value.to_owned()) {
        Some(_) => Err(Fault::new(format!("# {name}= is here twice: keep one"))),
        None => Ok(()),
    }
}

/// Docker would fetch a program that reads this language. We are that program, for one language.
fn known_syntax(value: &str) -> Result<&str, Fault> {
    let name = value.split_whitespace().next().unwrap_or_default();
    let name = name.split('@').next().unwrap_or_default();
    let short = name.strip_prefix("docker.io/").unwrap_or(name);
    let (image, version) = short.split_once(':').unwrap_or((short, "latest"));
    let is_docker = matches!(image, "docker/dockerfile" | "docker/dockerfile-upstream");
    let is_one = version == "1"
        || version.starts_with("1.")
        || version.starts_with("1-")
        || matches!(version, "latest" | "labs" | "experimental" | "master" | "master-labs");
    if is_docker && is_one {
        return Ok(value);
    }
    Err(Fault::new(format!(
        "the language {name} is not known here: only Dockerfiles of version 1 are built; \
         write # syntax=docker/dockerfile:1 or leave the line out"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Result<Directives, Fault> {
        let mut directives = Directives::default();
        for line in lines {
            if !directives.take(line)? {
                break;
            }
        }
        Ok(directives)
    }

    #[test]
    fn they_are_read_as_long_as_nothing_else_comes() {
        let found =
            read(&["# syntax = docker/dockerfile:1.7-labs", "#ESCAPE=`", "FROM x"]).unwrap();
        assert_eq!(found.escape, '`');
        assert_eq!(found.syntax.as_deref(), Some("docker/dockerfile:1.7-labs"));
        assert_eq!(read(&["# a comment", "# escape=`"]).unwrap().escape, '\\');
        assert_eq!(read(&["", "# escape=`"]).unwrap().escape, '\\');
        assert_eq!(read(&["# unknown=1", "# escape=`"]).unwrap().escape, '`');
        assert_eq!(read(&["# check=skip=all"]).unwrap().check.as_deref(), Some("skip=all"));
    }

    #[test]
    fn other_languages_and_escapes_are_refused() {
        for line in ["# escape=x", "# syntax=example/other:1", "# syntax=docker/dockerfile:2"] {
            assert!(read(&[line]).is_err(), "{line}");
        }
        assert!(read(&["# check=skip=a", "# check=skip=b"]).is_err());
    }
}
