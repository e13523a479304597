use osb_api::codes;

use crate::error::ApiError;

/// The kernel takes no longer argument (`execve(2)`, `MAX_ARG_STRLEN`).
pub(super) const MAX_ARGUMENT: usize = 128 * 1024 - 1;
/// Leaves room beside the environment in what the kernel takes altogether.
const MAX_ARGUMENTS: usize = 512 * 1024;

pub(super) fn admit(entrypoint: Option<Vec<String>>) -> Result<Vec<String>, ApiError> {
    let entrypoint = entrypoint.unwrap_or_default();
    let words = match entrypoint.as_slice() {
        [] => return Err(invalid("entrypoint must have at least one element: the program")),
        [line] if line.trim().contains(char::is_whitespace) => split(line).ok_or_else(|| {
            invalid("entrypoint has a quote or backslash without its counterpart")
        })?,
        _ => entrypoint,
    };
    check(&words).map_err(invalid)?;
    Ok(words)
}

/// Whether these words can be a command; otherwise what is wrong.
pub(crate) fn check(words: &[String]) -> Result<(), &'static str> {
    if words.first().is_none_or(|program| program.trim().is_empty()) {
        return Err("the first element of entrypoint must name a program");
    }
    if words.iter().any(|word| word.contains('\0')) {
        return Err("entrypoint must not contain NUL characters");
    }
    let total: usize = words.iter().map(|word| word.len() + 1).sum();
    if total > MAX_ARGUMENTS || words.iter().any(|word| word.len() > MAX_ARGUMENT) {
        return Err("entrypoint is longer than the kernel takes");
    }
    Ok(())
}

fn invalid(message: &str) -> ApiError {
    ApiError::invalid_as(codes::INVALID_ENTRYPOINT, message)
}

/// Splits a line into words the way a shell does, without expanding anything; `None` if a quote
/// stays open.
fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '"' => break,
                        '\\' => match rest.next()? {
                            c @ ('"' | '\\' | '$' | '`') => word.push(c),
                            c => word.extend(['\\', c]),
                        },
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(rest.next()?),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_a_shell_would() {
        for (line, words) in [
            ("tail -f /dev/null", &["tail", "-f", "/dev/null"][..]),
            ("  a   b  ", &["a", "b"]),
            (r#"sh -c 'echo "x y"; exit 3'"#, &["sh", "-c", r#"echo "x y"; exit 3"#]),
            (r#"sh -c "echo \"x\" \n $A""#, &["sh", "-c", r#"echo "x" \n $A"#]),
            (r"a\ b c\'d", &["a b", "c'd"]),
            ("a '' b", &["a", "", "b"]),
            ("pre'mid dle'post x", &["premid dlepost", "x"]),
        ] {
            assert_eq!(
                split(line).as_deref(),
                Some(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()[..]),
                "{line}"
            );
        }
        for open in ["a 'b", "a \"b", "a b\\", "a \"b\\"] {
            assert_eq!(split(open), None, "{open}");
        }
    }

    #[test]
    fn what_cannot_be_a_command_is_refused() {
        let list = |words: &[&str]| Some(words.iter().map(|w| (*w).to_owned()).collect());
        for entrypoint in
            [None, list(&[]), list(&[""]), list(&["  "]), list(&["", "x"]), list(&["a\0b"])]
        {
            assert!(admit(entrypoint.clone()).is_err(), "{entrypoint:?} was accepted");
        }
        assert!(admit(Some(vec!["a".to_owned(), "x".repeat(MAX_ARGUMENT + 1)])).is_err());
        assert!(admit(list(&["/bin/sh"])).is_ok());
        assert!(admit(list(&["/a b/c", "d"])).is_ok(), "two elements are taken as they are");
    }
}
