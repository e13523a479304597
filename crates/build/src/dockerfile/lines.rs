//! Lines as the language means them: continued, without comments, each with its number.

use super::heredoc::Heredoc;

/// The lines of a Dockerfile that are still to be read.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    rest: &'a str,
    /// How many were read.
    read: usize,
    escape: char,
}

/// One instruction, be it on one line or on many.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    /// The number of the first line, and of the last.
    pub(super) first: usize,
    pub(super) last: usize,
    /// Whether there was an empty line in the middle.
    pub(super) is_torn: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, read: 0, escape: '\\' }
    }

    pub(super) fn set_escape(&mut self, escape: char) {
        self.escape = escape;
    }

    pub(super) fn read(&self) -> usize {
        self.read
    }

    /// The next line as it is written, without being taken.
    pub(super) fn peek(&self) -> Option<&'a str> {
        let line = self.rest.split_inclusive('\n').next()?;
        Some(line.trim_end_matches(['\n', '\r']))
    }

    /// The next line as it is written, with its end.
    pub(super) fn raw(&mut self) -> Option<&'a str> {
        let line = self.rest.split_inclusive('\n').next()?;
        self.rest = self.rest.get(line.len()..).unwrap_or_default();
        self.read += 1;
        Some(line)
    }

    /// The next line that says something.
    pub(super) fn next(&mut self) -> Option<Line> {
        loop {
            let line = self.raw()?.trim_end_matches(['\n', '\r']).trim_start();
            let first = self.read;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (begin, mut goes_on) = self.continued(line);
            let mut text = begin.to_owned();
            let mut is_torn = false;
            while goes_on {
                let Some(line) = self.raw() else { break };
                let line = line.trim_end_matches(['\n', '\r']);
                let said = line.trim_start();
                if said.starts_with('#') {
                    continue;
                }
                if said.is_empty() {
                    is_torn = true;
                    continue;
                }
                let (more, on) = self.continued(line);
                text.push_str(more);
                goes_on = on;
            }
            if text.trim().is_empty() {
                continue;
            }
            return Some(Line { text, first, last: self.read, is_torn });
        }
    }

    /// The line without the mark that it goes on, and whether it had one. A mark that is itself
    /// escaped is none.
    fn continued<'b>(&self, line: &'b str) -> (&'b str, bool) {
        let bare = line.trim_end_matches([' ', '\t']);
        match bare.strip_suffix(self.escape) {
            Some(begin) if !begin.ends_with(self.escape) => (begin, true),
            _ => (line, false),
        }
    }

    /// Reads the text of a here-document up to the line that ends it. `None` if nothing ends it.
    pub(super) fn document(&mut self, document: &Heredoc) -> Option<String> {
        let mut content = String::new();
        loop {
            let line = self.raw()?;
            let bare = line.trim_end_matches(['\n', '\r']);
            let bare = if document.strips_tabs { bare.trim_start_matches('\t') } else { bare };
            if bare == document.name {
                return Some(content);
            }
            content.push_str(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<(String, usize, usize)> {
        let mut lines = Lines::new(text);
        std::iter::from_fn(|| lines.next()).map(|line| (line.text, line.first, line.last)).collect()
    }

    #[test]
    fn a_line_goes_on_past_comments_and_empty_lines() {
        let text = "RUN a \\\n  # why\n\n\t# more\n  b \\ \t\n c\nRUN d\n";
        let expected = [("RUN a   b  c".to_owned(), 1, 6), ("RUN d".to_owned(), 7, 7)];
        assert_eq!(texts(text), expected);
        let mut lines = Lines::new("RUN a \\\n\n b");
        assert!(lines.next().unwrap().is_torn);
    }

    #[test]
    fn an_escaped_mark_does_not_continue() {
        assert_eq!(texts("RUN a \\\\\nRUN b").len(), 2);
        assert_eq!(texts("RUN a `\nRUN b").len(), 2);
        let mut lines = Lines::new("RUN a `\n b\\\nRUN c");
        lines.set_escape('`');
        assert_eq!(lines.next().unwrap().text, "RUN a  b\\");
    }

    #[test]
    fn ends_of_lines_from_elsewhere_and_a_missing_end_do_no_harm() {
        let expected = [("RUN a b".to_owned(), 1, 2), ("RUN c ".to_owned(), 3, 3)];
        assert_eq!(texts("RUN a \\\r\nb\r\nRUN c \\"), expected);
        assert_eq!(texts("\\\n\\\n"), []);
    }
}
