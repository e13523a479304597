use std::collections::VecDeque;

use crate::table;

/// How much of a line is kept.
const LONGEST: usize = 4096;

/// The last lines that somebody said.
#[derive(Debug)]
pub(super) struct Tail {
    lines: VecDeque<String>,
    most: usize,
}

impl Tail {
    pub(super) fn new(most: usize) -> Self {
        Self { lines: VecDeque::new(), most }
    }

    pub(super) fn push(&mut self, line: &str) {
        while self.lines.len() >= self.most {
            self.lines.pop_front();
        }
        self.lines.push_back(clean(line));
    }

    pub(super) fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}

/// A line of somebody else's as it can stand on a terminal.
pub(super) fn clean(line: &str) -> String {
    // What programs write over on a terminal, they write over here.
    let line = line.trim_end().rsplit('\r').next().unwrap_or_default();
    let mut cut: String = line.chars().take(LONGEST).collect();
    if cut.len() < line.len() {
        cut.push('…');
    }
    table::clean(&cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut tail = Tail::new(2);
        for line in ["a", "b\r\n", "10%\r20%\rc\u{1b}[1m"] {
            tail.push(line);
        }
        assert_eq!(tail.lines().collect::<Vec<_>>(), ["b", "c [1m"]);
        tail.push(&"x".repeat(LONGEST + 1));
        assert_eq!(tail.lines().next_back().unwrap().chars().count(), LONGEST + 1);
    }
}
