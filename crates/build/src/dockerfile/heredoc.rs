//! Here-documents: text within a Dockerfile, for `RUN`, `COPY` and `ADD`.

use super::words;
use crate::problem::Fault;

/// A text that stands in the Dockerfile itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heredoc {
    /// What ends it, which is also what its file is called.
    pub name: String,
    /// Whether variables in it are replaced, where the builder does that: not if the name is quoted.
    pub expands: bool,
    /// `<<-`: without the tabs at the beginning of each line.
    pub strips_tabs: bool,
    /// As it was written.
    pub content: String,
}

impl Heredoc {
    /// The text as it is meant.
    pub fn text(&self) -> String {
        if !self.strips_tabs {
            return self.content.clone();
        }
        self.content.split_inclusive('\n').map(|line| line.trim_start_matches('\t')).collect()
    }
}

/// The here-documents that a line begins, without their content, in the order of their texts.
pub(super) fn begun(line: &str) -> Result<Vec<Heredoc>, Fault> {
    if !line.contains("<<") {
        return Ok(Vec::new());
    }
    let words = words::shell(line, '\\').map_err(|Fault(what)| {
        Fault(format!("{what}; it has to be clear what is a here-document and what is not"))
    })?;
    Ok(words.iter().filter_map(|word| begins(word)).collect())
}

/// What a word begins, if it begins a here-document: `<<NAME`, `3<<-"NAME"`.
pub(super) fn begins(word: &str) -> Option<Heredoc> {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix("<<")?;
    let (strips_tabs, rest) = match rest.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let rest = rest.trim_start();
    if rest.is_empty() || rest.contains('<') {
        return None;
    }
    let name = words::unquote(rest, '\\').ok()?;
    if name.is_empty() || name.chars().any(char::is_whitespace) {
        return None;
    }
    let expands = name == rest;
    Some(Heredoc { name, expands, strips_tabs, content: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> Vec<String> {
        let mark = |heredoc: Heredoc| {
            let strips = if heredoc.strips_tabs { "-" } else { "" };
            let expands = if heredoc.expands { "" } else { "'" };
            format!("{strips}{}{expands}", heredoc.name)
        };
        begun(line).unwrap().into_iter().map(mark).collect()
    }

    #[test]
    fn several_may_begin_in_one_line() {
        assert_eq!(names("cat <<A <<-'B' 3<<\"C\" > x"), ["A", "-B'", "C'"]);
        assert_eq!(names("cat << END | sh"), ["END"]);
        assert_eq!(names("cat <<E\\OF"), ["EOF'"]);
    }

    #[test]
    fn what_only_looks_like_one_is_none() {
        for line in ["echo \"<<A\"", "echo '<<A'", "x <<< text", "echo $((1<<2))", "a << ", "<<<A"]
        {
            assert!(names(line).is_empty(), "{line}");
        }
        assert!(begun("it's <<A").is_err());
    }

    #[test]
    fn tabs_are_stripped_where_asked_for() {
        let mut heredoc = begins("<<-A").unwrap();
        heredoc.content = "\t\ta\n \tb\n\tc".to_owned();
        assert_eq!(heredoc.text(), "a\n \tb\nc");
    }
}
