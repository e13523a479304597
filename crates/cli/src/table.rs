//! Columns for people.

use std::fmt::Write as _;

/// Rows below headings, padded so that columns line up.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(headings: [&str; N]) -> Self {
        Self { rows: vec![headings.map(ToOwned::to_owned)] }
    }

    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| clean(&cell)));
    }

    /// The lines, without the last line break.
    pub(crate) fn render(&self) -> String {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (width, cell) in widths.iter().zip(row) {
                write!(line, "{cell:<width$}  ").expect("writing to a string succeeds");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text.truncate(text.trim_end_matches('\n').len());
        text
    }
}

/// A line of a table of which nobody knows yet how wide its columns will be.
pub(crate) fn spaced<const N: usize>(cells: [&str; N], widths: [usize; N]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
    clean(padded.collect::<Vec<_>>().join("  ").trim_end())
}

/// A text as it can stand on one line: what breaks the line would break the table, and what turns
/// the direction of others, or is not to be seen, would make them look like something else.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}' => clean.extend(character.escape_unicode()),
            _ if character.is_control() => clean.push(' '),
            _ => clean.push(character),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_makes_a_line_look_like_another() {
        assert_eq!(clean("/a\u{202e}b\u{2028}c"), r"/a\u{202e}b\u{2028}c");
        assert_eq!(clean("/a\u{9b}31m\u{1b}[1m"), "/a 31m [1m");
        assert_eq!(clean("/grün/日本"), "/grün/日本");
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["ID", "STATE"]);
        table.row(["a".to_owned(), "Running".to_owned()]);
        table.row(["longer\n".to_owned(), String::new()]);
        assert_eq!(table.render(), "ID       STATE\na        Running\nlonger");
    }
}
