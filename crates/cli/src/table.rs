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
        // A cell that breaks the line would break the table.
        self.rows.push(cells.map(|cell| cell.replace(char::is_control, " ")));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["ID", "STATE"]);
        table.row(["a".to_owned(), "Running".to_owned()]);
        table.row(["longer\n".to_owned(), String::new()]);
        assert_eq!(table.render(), "ID       STATE\na        Running\nlonger");
    }
}
