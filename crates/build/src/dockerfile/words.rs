//! How the rest of a line falls into words.

use crate::problem::Fault;

/// Words as `ENV`, `LABEL` and `ARG` have them: blanks within quotes or after an escape do not
/// separate. Quotes and escapes are kept for whoever replaces variables.
pub(super) fn split(text: &str, escape: char) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if quote.is_none() && c.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let into = word.get_or_insert_default();
        if c == escape && quote != Some('\'') {
            // One at the very end says nothing.
            let Some(next) = chars.next() else { break };
            into.extend([c, next]);
            continue;
        }
        into.push(c);
        quote = match quote {
            None if c == '\'' || c == '"' => Some(c),
            Some(open) if open == c => None,
            other => other,
        };
    }
    words.extend(word);
    words
}

/// Words as a shell would see them, as far as it takes to find here-documents: `<< NAME` is one.
pub(super) fn shell(text: &str, escape: char) -> Result<Vec<String>, Fault> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if quote.is_none() && c.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let into = word.get_or_insert_default();
        into.push(c);
        if c == escape && quote != Some('\'') {
            into.extend(chars.next());
        } else if c == '<' && quote.is_none() && chars.next_if_eq(&'<').is_some() {
            into.push('<');
            while let Some(blank) = chars.next_if(|c| c.is_whitespace()) {
                into.push(blank);
            }
        } else {
            quote = match quote {
                None if c == '\'' || c == '"' => Some(c),
                Some(open) if open == c => None,
                other => other,
            };
        }
    }
    if let Some(quote) = quote {
        return Err(Fault::new(format!("a {quote} is opened and not closed")));
    }
    words.extend(word);
    Ok(words)
}

/// Words between blanks, whatever else is in them.
pub(super) fn blank(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// A word without its quotes and escapes; variables are left alone.
pub(super) fn unquote(word: &str, escape: char) -> Result<String, Fault> {
    let mut bare = String::new();
    let mut quote = None;
    let mut chars = word.chars().peekable();
    while let Some(c) = chars.next() {
        match quote {
            Some('\'') if c != '\'' => bare.push(c),
            Some(_) if c == escape => {
                let taken = chars.next_if(|next| matches!(next, '"' | '$') || *next == escape);
                bare.push(taken.unwrap_or(c));
            }
            None if c == escape => bare.extend(chars.next()),
            None if c == '\'' || c == '"' => quote = Some(c),
            Some(open) if open == c => quote = None,
            None | Some(_) => bare.push(c),
        }
    }
    match quote {
        Some(quote) => Err(Fault::new(format!("a {quote} is opened and not closed"))),
        None => Ok(bare),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_within_quotes_do_not_separate() {
        assert_eq!(
            split(r#"a="b c" d='e "f' g=h\ i"#, '\\'),
            ["a=\"b c\"", "d='e \"f'", "g=h\\ i"]
        );
        assert_eq!(split("  a\t b  ", '\\'), ["a", "b"]);
        assert_eq!(split("a\\", '\\'), ["a"]);
        assert_eq!(split("a=`b c", '`'), ["a=`b", "c"]);
    }

    #[test]
    fn quotes_come_off_as_a_shell_takes_them_off() {
        for (word, bare) in [
            (r#""a b"c'd e'"#, "a bcd e"),
            (r#""a\"b\n""#, r#"a"b\n"#),
            (r"a\ b\\", r"a b\"),
            (r"'a\b'", r"a\b"),
        ] {
            assert_eq!(unquote(word, '\\').unwrap(), bare, "{word}");
        }
        assert!(unquote("'a", '\\').is_err());
    }
}
