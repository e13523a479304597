//! What somebody may have meant.

/// The candidate that differs least from `word`, if any is near enough to be meant.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // Two words that differ in more are not the same word with a slip.
    let slips = word.chars().count().div_ceil(4).clamp(1, 3);
    let distance = |candidate: &'a str| (distance(&plain(word), &plain(candidate)), candidate);
    let best = candidates.into_iter().map(distance).min_by_key(|(distance, _)| *distance)?;
    (best.0 <= slips).then_some(best.1)
}

/// Without what people write in one way or the other.
fn plain(word: &str) -> Vec<char> {
    word.chars().filter(|letter| !"-_".contains(*letter)).flat_map(char::to_lowercase).collect()
}

/// How many letters have to be added, left out, replaced or exchanged with their neighbours.
fn distance(left: &[char], right: &[char]) -> usize {
    // A line of the table for every beginning of `left`; the last three are needed.
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, letter) in left.iter().enumerate() {
        let mut line = vec![row + 1];
        for (column, other) in right.iter().enumerate() {
            let at = |line: &[usize], column: usize| line.get(column).copied().unwrap_or_default();
            let replaced = at(&above, column) + usize::from(letter != other);
            let mut least = replaced.min(at(&above, column + 1) + 1).min(at(&line, column) + 1);
            let is_exchanged = row > 0
                && column > 0
                && left.get(row - 1) == Some(other)
                && right.get(column - 1) == Some(letter);
            if is_exchanged {
                least = least.min(at(&before, column - 1) + 1);
            }
            line.push(least);
        }
        before = std::mem::replace(&mut above, line);
    }
    above.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_seen_and_other_words_are_not() {
        let known = ["listen", "data-dir", "api-key", "api-key-file", "max-body-bytes"];
        for (word, meant) in [
            ("lissten", Some("listen")),
            ("litsen", Some("listen")),
            ("datadir", Some("data-dir")),
            ("API_KEY", Some("api-key")),
            ("max-body-byte", Some("max-body-bytes")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest("listen", []), None);
    }

    #[test]
    fn a_distance_is_the_number_of_slips() {
        let between = |left: &str, right: &str| distance(&plain(left), &plain(right));
        assert_eq!(between("abc", "abc"), 0);
        assert_eq!((between("", "abc"), between("abc", "")), (3, 3));
        assert_eq!(between("kitten", "sitting"), 3);
        assert_eq!(between("ab", "ba"), 1);
    }
}
