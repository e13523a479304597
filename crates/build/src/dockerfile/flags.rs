//! The `--flags` between the name of an instruction and its arguments.

use crate::problem::{Fault, meant};

/// The flags of one instruction. Whoever reads it takes out those that it knows; what is left then is
/// an error.
#[derive(Debug)]
pub(super) struct Flags {
    given: Vec<(String, Option<String>)>,
    known: Vec<&'static str>,
}

impl Flags {
    /// Splits flags off the beginning of `text`.
    pub(super) fn split(text: &str, escape: char) -> Result<(Self, &str), Fault> {
        let mut given = Vec::new();
        let mut rest = text.trim_start();
        while rest.starts_with("--") {
            let (word, after) = first_word(rest, escape)?;
            rest = after.trim_start();
            if word == "--" {
                break;
            }
            let flag = word.get(2..).unwrap_or_default();
            given.push(match flag.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (flag.to_owned(), None),
            });
        }
        Ok((Self { given, known: Vec::new() }, rest))
    }

    /// All values of a flag that may be there several times.
    pub(super) fn all(&mut self, name: &'static str) -> Result<Vec<String>, Fault> {
        self.known.push(name);
        let mut values = Vec::new();
        let mut others = Vec::new();
        for (flag, value) in self.given.drain(..) {
            match (flag == name, value) {
                (false, value) => others.push((flag, value)),
                (true, Some(value)) => values.push(value),
                (true, None) => {
                    return Err(Fault::new(format!("--{name} lacks its value: write --{name}=…")));
                }
            }
        }
        self.given = others;
        Ok(values)
    }

    /// The value of a flag.
    pub(super) fn one(&mut self, name: &'static str) -> Result<Option<String>, Fault> {
        let mut values = self.all(name)?;
        let value = values.pop();
        if values.is_empty() { Ok(value) } else { Err(twice(name)) }
    }

    /// Whether a flag is there, or what it says.
    pub(super) fn switch(&mut self, name: &'static str) -> Result<Option<bool>, Fault> {
        for (flag, value) in &mut self.given {
            if flag == name && value.is_none() {
                *value = Some("true".to_owned());
            }
        }
        let Some(value) = self.one(name)? else { return Ok(None) };
        match value.as_str() {
            "true" | "1" => Ok(Some(true)),
            "false" | "0" => Ok(Some(false)),
            _ => Err(Fault::new(format!("--{name} is true or false, not {value}"))),
        }
    }

    /// Fails if a flag is left.
    pub(super) fn end(self, instruction: &str) -> Result<(), Fault> {
        let Some((name, _)) = self.given.first() else { return Ok(()) };
        let help = match meant(name, &self.known) {
            Some(known) => format!("did you mean --{known}?"),
            None if self.known.is_empty() => "it has none".to_owned(),
            None => format!("it has --{}", self.known.join(", --")),
        };
        Err(Fault::new(format!("{instruction} has no flag --{name}: {help}")))
    }
}

fn twice(name: &str) -> Fault {
    Fault::new(format!("--{name} is here twice: keep one"))
}

/// The first word without its quotes and escapes, and what follows it.
fn first_word(text: &str, escape: char) -> Result<(String, &str), Fault> {
    let mut word = String::new();
    let mut quote = None;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match quote {
            None if c.is_whitespace() => return Ok((word, text.get(at..).unwrap_or_default())),
            Some(open) if open == c => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            Some('\'') => word.push(c),
            _ if c == escape => word.extend(chars.next().map(|(_, next)| next)),
            _ => word.push(c),
        }
    }
    match quote {
        Some(quote) => Err(Fault::new(format!("a {quote} is opened in a flag and not closed"))),
        None => Ok((word, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_end_where_arguments_begin() {
        let (mut flags, rest) = Flags::split("--a=1 --b --c='x y' z --d", '\\').unwrap();
        assert_eq!(rest, "z --d");
        assert_eq!(flags.one("a").unwrap().as_deref(), Some("1"));
        assert_eq!(flags.switch("b").unwrap(), Some(true));
        assert_eq!(flags.all("c").unwrap(), ["x y"]);
        flags.end("RUN").unwrap();
        assert_eq!(Flags::split("-- --a", '\\').unwrap().1, "--a");
    }

    #[test]
    fn what_is_not_known_or_twice_is_an_error() {
        let (mut flags, _) = Flags::split("--chwon=1 x", '\\').unwrap();
        assert_eq!(flags.one("chown").unwrap(), None);
        assert_eq!(
            flags.end("COPY").unwrap_err().0,
            "COPY has no flag --chwon: did you mean --chown?"
        );
        let split = |text| Flags::split(text, '\\').unwrap().0;
        assert!(split("--a=1 --a=2 x").one("a").is_err());
        assert!(split("--a x").one("a").is_err());
        assert!(split("--a=perhaps x").switch("a").is_err());
    }
}
