//! Variables: `$x`, `${x}` and what may follow the name within the braces.

mod pattern;

use std::{iter::Peekable, str::Chars};

use self::pattern::Pattern;
use crate::problem::Fault;

/// The longest value that the kernel gives to a program as one string is 128 KiB (`execve(2)`). It
/// also bounds what doubling a variable line by line comes to.
pub(crate) const LONGEST: usize = 128 << 10;
/// How deep `${a:-${b:-…}}` may go.
const DEEPEST: usize = 32;

/// Where the values of variables come from.
pub(crate) trait Variables {
    fn value(&self, name: &str) -> Option<&str>;
}

impl<F: Fn(&str) -> Option<&'static str>> Variables for F {
    fn value(&self, name: &str) -> Option<&str> {
        self(name)
    }
}

impl Variables for std::collections::BTreeMap<String, String> {
    fn value(&self, name: &str) -> Option<&str> {
        self.get(name).map(String::as_str)
    }
}

/// A word with its variables replaced, and its quotes and escapes taken off.
pub(crate) fn word(text: &str, escape: char, of: &dyn Variables) -> Result<String, Fault> {
    let mut expander = Expander::new(text, escape, of, Quotes::Meant);
    let found = expander.until(None, Escapes::TakenOff)?;
    Ok(found.whole)
}

/// The same, and the words that come of it: blanks in the value of a variable separate.
pub(crate) fn words(text: &str, escape: char, of: &dyn Variables) -> Result<Vec<String>, Fault> {
    let mut expander = Expander::new(text, escape, of, Quotes::Meant);
    Ok(expander.until(None, Escapes::TakenOff)?.words)
}

/// A text in which quotes are only characters: that of a here-document.
pub(crate) fn document(text: &str, of: &dyn Variables) -> Result<String, Fault> {
    let mut expander = Expander::new(text, '\\', of, Quotes::Ordinary);
    expander.longest = usize::MAX;
    Ok(expander.until(None, Escapes::TakenOff)?.whole)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Meant,
    Ordinary,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    TakenOff,
    /// For a pattern, which has escapes of its own.
    Kept,
}

struct Expander<'a> {
    chars: Peekable<Chars<'a>>,
    escape: char,
    of: &'a dyn Variables,
    quotes: Quotes,
    depth: usize,
    longest: usize,
}

/// What was read so far.
#[derive(Default)]
struct Found {
    whole: String,
    words: Vec<String>,
    word: Option<String>,
}

impl Found {
    /// What belongs to the word whatever it is.
    fn take(&mut self, c: char) {
        self.whole.push(c);
        self.word.get_or_insert_default().push(c);
    }

    fn take_all(&mut self, text: &str) {
        self.whole.push_str(text);
        self.word.get_or_insert_default().push_str(text);
    }

    /// What ends the word if it is a blank.
    fn take_splitting(&mut self, text: &str) {
        for c in text.chars() {
            if c.is_whitespace() {
                self.whole.push(c);
                self.words.extend(self.word.take());
            } else {
                self.take(c);
            }
        }
    }
}

impl<'a> Expander<'a> {
    fn new(text: &'a str, escape: char, of: &'a dyn Variables, quotes: Quotes) -> Self {
        Self { chars: text.chars().peekable(), escape, of, quotes, depth: 0, longest: LONGEST }
    }

    /// Reads up to `end`, which is taken too, or up to the end of the text.
    fn until(&mut self, end: Option<char>, escapes: Escapes) -> Result<Found, Fault> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Fault::new(format!(
                "substitutions are nested more than {DEEPEST} deep: use a variable in between"
            )));
        }
        let mut found = Found::default();
        loop {
            let Some(c) = self.chars.next() else {
                if let Some(end) = end {
                    return Err(Fault::new(format!("a substitution ${{…}} lacks its {end}")));
                }
                break;
            };
            match c {
                _ if Some(c) == end => break,
                '$' => found.take_splitting(&self.dollar(escapes)?),
                '\'' if self.quotes == Quotes::Meant => {
                    let text = self.single_quoted(escapes)?;
                    found.take_all(&text);
                }
                '"' if self.quotes == Quotes::Meant => {
                    let text = self.double_quoted(escapes)?;
                    found.take_all(&text);
                }
                _ if c == self.escape => {
                    if escapes == Escapes::Kept {
                        found.take(c);
                    }
                    if let Some(next) = self.chars.next() {
                        found.take(next);
                    }
                }
                _ => found.take_splitting(c.encode_utf8(&mut [0; 4])),
            }
            self.check_length(found.whole.len())?;
        }
        self.depth -= 1;
        found.words.extend(found.word.take());
        Ok(found)
    }

    fn check_length(&self, length: usize) -> Result<(), Fault> {
        if length > self.longest {
            return Err(Fault::new(format!(
                "with its variables replaced, a value has more than {LONGEST} bytes, \
                 which no program can be given"
            )));
        }
        Ok(())
    }

    fn single_quoted(&mut self, escapes: Escapes) -> Result<String, Fault> {
        let mut text = String::new();
        for c in self.chars.by_ref() {
            if c == '\'' {
                return Ok(text);
            }
            // So that a pattern sees the character itself.
            if c == self.escape && escapes == Escapes::Kept {
                text.push(c);
            }
            text.push(c);
        }
        Err(unclosed('\''))
    }

    fn double_quoted(&mut self, escapes: Escapes) -> Result<String, Fault> {
        let mut text = String::new();
        while let Some(c) = self.chars.next() {
            match c {
                '"' => return Ok(text),
                '$' => text.push_str(&self.dollar(escapes)?),
                _ if c == self.escape => {
                    let escape = self.escape;
                    let next = self.chars.next_if(|c| matches!(c, '"' | '$') || *c == escape);
                    if escapes == Escapes::Kept {
                        text.push(c);
                    }
                    text.push(next.unwrap_or(c));
                }
                _ => text.push(c),
            }
            self.check_length(text.len())?;
        }
        Err(unclosed('"'))
    }

    /// What stands for what follows a `$`.
    fn dollar(&mut self, escapes: Escapes) -> Result<String, Fault> {
        if self.chars.next_if_eq(&'{').is_none() {
            let name = self.name();
            if name.is_empty() {
                return Ok("$".to_owned());
            }
            return Ok(self.of.value(&name).unwrap_or_default().to_owned());
        }
        let name = self.name();
        if name.is_empty() {
            return Err(Fault::new("${ has to be followed by the name of a variable"));
        }
        let value = self.of.value(&name);
        match self.chars.next() {
            None => Err(Fault::new(format!("${{{name} lacks its closing brace"))),
            Some('}') => Ok(value.unwrap_or_default().to_owned()),
            Some(':') => {
                let set = value.filter(|value| !value.is_empty());
                match self.chars.next() {
                    Some(sign @ ('-' | '+' | '?')) => self.default(&name, set, sign, escapes),
                    other => Err(unknown_modifier(&name, &format!(":{}", sign(other)))),
                }
            }
            Some(sign @ ('-' | '+' | '?')) => self.default(&name, value, sign, escapes),
            Some(side @ ('#' | '%')) => {
                let longest = self.chars.next_if_eq(&side).is_some();
                let pattern =
                    Pattern::new(&self.until(Some('}'), Escapes::Kept)?.whole, self.escape)?;
                let value = value.unwrap_or_default();
                let kept = if side == '#' {
                    pattern.without_prefix(value, longest)?
                } else {
                    pattern.without_suffix(value, longest)?
                };
                Ok(kept.to_owned())
            }
            Some('/') => {
                let all = self.chars.next_if_eq(&'/').is_some();
                let pattern =
                    Pattern::new(&self.until(Some('/'), Escapes::Kept)?.whole, self.escape)?;
                let with = self.until(Some('}'), Escapes::Kept)?.whole;
                let replaced = pattern.replace(value.unwrap_or_default(), &with, all)?;
                self.check_length(replaced.len())?;
                Ok(replaced)
            }
            other => Err(unknown_modifier(&name, &sign(other))),
        }
    }

    /// `-`, `+` and `?`: what to take if the variable is set, and if it is not.
    fn default(
        &mut self,
        name: &str,
        value: Option<&str>,
        sign: char,
        escapes: Escapes,
    ) -> Result<String, Fault> {
        let word = self.until(Some('}'), escapes)?.whole;
        match (sign, value) {
            ('-', None) | ('+', Some(_)) => Ok(word),
            ('+', None) => Ok(String::new()),
            (_, Some(value)) => Ok(value.to_owned()),
            (_, None) if word.is_empty() => {
                Err(Fault::new(format!("{name} has no value, and it must have one")))
            }
            (_, None) => Err(Fault::new(format!("{name}: {word}"))),
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        if let Some(c) = self.chars.next_if(|c| "@*#?-$!".contains(*c)) {
            name.push(c);
            return name;
        }
        let is_number = self.chars.peek().is_some_and(char::is_ascii_digit);
        let belongs = |c: &char| {
            if is_number { c.is_ascii_digit() } else { c.is_alphanumeric() || *c == '_' }
        };
        while let Some(c) = self.chars.next_if(belongs) {
            name.push(c);
        }
        name
    }
}

fn sign(c: Option<char>) -> String {
    c.map(String::from).unwrap_or_default()
}

fn unclosed(quote: char) -> Fault {
    Fault::new(format!(
        "a {quote} is opened and not closed; write \\{quote} for the character itself"
    ))
}

fn unknown_modifier(name: &str, sign: &str) -> Fault {
    Fault::new(format!(
        "${{{name}{sign}…}} is not known: after the name may come :- - :+ + :? ? # ## % %% / //"
    ))
}

#[cfg(test)]
mod tests;
