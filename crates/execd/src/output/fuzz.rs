use super::lines::Lines;

/// The texts of the events that an output becomes which comes in pieces.
pub fn lines<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut lines, mut texts) = (Lines::default(), Vec::new());
    for piece in pieces {
        lines.feed(piece, |text| texts.push(text.into_owned()));
    }
    lines.finish(|text| texts.push(text.into_owned()));
    texts
}
