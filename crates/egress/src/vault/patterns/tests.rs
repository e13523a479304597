use proptest::{collection::vec, prelude::*};
use secrecy::zeroize::Zeroizing;

use super::*;

fn patterns(pairs: &[(&str, &str)]) -> Arc<Patterns> {
    let wiped = |text: &str| Zeroizing::new(text.as_bytes().to_vec());
    Arc::new(Patterns::new(pairs.iter().map(|(find, put)| (wiped(find), wiped(put)))))
}

/// The meaning, without a thought for speed or pieces.
fn naive(pairs: &[(&str, &str)], text: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let mut best: Option<&(&str, &str)> = None;
        for pair in pairs.iter().filter(|(find, _)| !find.is_empty()) {
            if text[at..].starts_with(pair.0.as_bytes())
                && best.is_none_or(|(find, _)| pair.0.len() > find.len())
            {
                best = Some(pair);
            }
        }
        if let Some((find, put)) = best {
            out.extend_from_slice(put.as_bytes());
            at += find.len();
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

fn open(patterns: Arc<Patterns>) -> Rewrite {
    Rewrite::new(patterns, usize::MAX, None)
}

fn blind(secret: &str) -> Rewrite {
    Rewrite::redacting(Arc::new(Spellings::new([secret.as_bytes()])), None)
}

impl Rewrite {
    /// Pushes, and goes on until all of it was gone through.
    pub(in crate::vault) fn push_all(&mut self, piece: Bytes) -> Result<Bytes, Overgrown> {
        let done = self.push(piece, &mut Work::new(1))?;
        Ok(self.until_done(done))
    }

    pub(in crate::vault) fn finish_all(mut self) -> Result<Bytes, Overgrown> {
        let done = self.finish(&mut Work::new(1))?;
        Ok(self.until_done(done))
    }

    fn until_done(&mut self, mut done: Poll<Bytes>) -> Bytes {
        loop {
            match done {
                Poll::Ready(piece) => return piece,
                Poll::Pending => done = self.resume(&mut Work::new(1)),
            }
        }
    }
}

fn streamed(mut rewrite: Rewrite, pieces: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        out.extend_from_slice(&rewrite.push_all(Bytes::copy_from_slice(piece)).unwrap());
    }
    out.extend_from_slice(&rewrite.finish_all().unwrap());
    out
}

#[test]
fn the_longest_text_at_the_leftmost_place_wins_and_is_not_looked_at_again() {
    let patterns = patterns(&[("ab", "1"), ("abc", "ab"), ("bcd", "2"), ("x", "xx")]);
    for (text, expected) in
        [("abcd", "abd"), ("aabcabc", "aabab"), ("bcd", "2"), ("xax", "xxaxx"), ("", "")]
    {
        let whole = patterns.replace(text.as_bytes(), &mut { usize::MAX }).unwrap();
        assert_eq!(std::str::from_utf8(&whole).unwrap(), expected, "{text}");
    }
}

#[test]
fn only_what_may_be_a_beginning_is_held_back() {
    let mut rewrite = open(patterns(&[("__KEY__", "s")]));
    let mut push = |text: &'static str| rewrite.push_all(Bytes::from_static(text.as_bytes()));
    assert_eq!(push("data: hello\n\n").unwrap(), "data: hello\n\n");
    assert_eq!(push("a __K").unwrap(), "a ");
    assert_eq!(push("EY").unwrap(), "");
    assert_eq!(push("__ b _").unwrap(), "s b ");
    assert_eq!(push(".").unwrap(), "_.");
    assert_eq!(push("__KEY_").unwrap(), "");
    assert_eq!(rewrite.finish_all().unwrap(), "__KEY_");
}

#[test]
fn a_piece_without_a_hit_is_not_copied() {
    let mut rewrite = open(patterns(&[("__KEY__", "s")]));
    let piece = Bytes::from(vec![b'a'; 1000]);
    let passed = rewrite.push_all(piece.clone()).unwrap();
    assert_eq!(passed.as_ptr(), piece.as_ptr());
}

#[test]
fn what_a_whole_body_needs_is_known_before() {
    let patterns = patterns(&[("abcd", "0123456789"), ("xyz", "")]);
    let needs = |room, length| Rewrite::new(Arc::clone(&patterns), room, length).needs();
    assert_eq!(needs(1000, Some(9)), Some(9 + 14));
    assert_eq!(needs(10, Some(9)), Some(9 + 10));
    assert_eq!(needs(0, Some(Rewrite::WHOLE)), Some(1 << 20));
    assert_eq!((needs(0, Some(Rewrite::WHOLE + 1)), needs(0, None)), (None, None));
}

#[test]
fn no_step_becomes_much() {
    let secret = "s".repeat(16 << 10);
    let rewrite = open(patterns(&[("x", &secret)]));
    assert!((1..=4).contains(&rewrite.step()));
    assert_eq!(open(patterns(&[("__KEY__", "short")])).step(), STEP);
}

#[test]
fn growth_has_an_end() {
    let mut rewrite = Rewrite::new(patterns(&[("x", "0123456789")]), 2 * CHARGE, None);
    assert!(rewrite.push_all(Bytes::from_static(b"x.x")).is_ok());
    assert_eq!(rewrite.push_all(Bytes::from_static(b"x")), Err(Overgrown));
}

#[test]
fn how_much_fits_does_not_tell_how_long_a_secret_is() {
    let fitting = |length: usize| {
        let patterns = patterns(&[("__KEY__", &"s".repeat(length))]);
        let fits = |count: &usize| {
            patterns.replace("__KEY__".repeat(*count).as_bytes(), &mut { 64 << 10 }).is_ok()
        };
        (1..1000).take_while(fits).count()
    };
    assert_eq!(fitting(1), fitting(200));
    assert_eq!((fitting(1), fitting(300)), (256, 128));
}

proptest! {
    #[test]
    fn however_it_is_cut_the_answer_is_that_of_the_whole(
        pairs in vec(("[abc]{1,5}", "[abcd]{0,6}"), 0..6),
        pieces in vec("[abcd\n]{0,6}", 0..12),
    ) {
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let whole = pieces.concat();
        let patterns = patterns(&pairs);
        let expected = naive(&pairs, whole.as_bytes());
        let pieces: Vec<_> = pieces.iter().map(String::as_bytes).collect();
        prop_assert_eq!(streamed(open(patterns.clone()), &pieces), expected.clone());
        let at_once = patterns.replace(whole.as_bytes(), &mut { usize::MAX }).unwrap();
        prop_assert_eq!(at_once.into_owned(), expected);
    }

    #[test]
    fn what_is_held_back_is_shorter_than_the_longest_text(
        pairs in vec("[ab]{1,6}", 1..5),
        pieces in vec("[ab]{0,8}", 0..10),
    ) {
        let longest = pairs.iter().map(String::len).max().unwrap();
        let pairs: Vec<_> = pairs.iter().map(|find| (find.as_str(), "")).collect();
        let mut rewrite = open(patterns(&pairs));
        for piece in pieces {
            rewrite.push_all(Bytes::from(piece)).unwrap();
            let Sought::Texts { held, .. } = &rewrite.sought else { unreachable!() };
            prop_assert!(held.len() < longest);
        }
    }

    #[test]
    fn the_pieces_tell_nothing_of_a_text_that_is_not_in_them(
        one in "[ab]{6}",
        other in "[ab]{6}",
        pieces in vec("[ab]{0,5}[\n.]?[ab]{0,400}(%6)?", 0..8),
    ) {
        let whole = pieces.concat();
        // So that neither is in it, and every beginning of both is.
        let (one, other) = (format!("{one}!"), format!("{other}!"));
        let lengths = |secret: &str| {
            let mut rewrite = blind(secret);
            let pushed: Vec<_> = pieces.iter().map(|piece| {
                rewrite.push_all(Bytes::copy_from_slice(piece.as_bytes())).unwrap()
            }).collect();
            let last = rewrite.finish_all().unwrap();
            assert_eq!([pushed.concat().as_slice(), &last].concat(), whole.as_bytes());
            pushed.iter().map(Bytes::len).collect::<Vec<_>>()
        };
        prop_assert_eq!(lengths(&one), lengths(&other));
    }

    #[test]
    fn texts_are_found_across_what_is_held_back_blindly(
        before in vec("[ab\n]{0,300}", 0..4),
        after in vec("[ab\n]{0,300}", 0..4),
        cut in 0..7_usize,
    ) {
        let (begin, end) = "s3cret!".split_at(cut);
        let all = [before.clone(), vec![begin.to_owned(), end.to_owned()], after.clone()].concat();
        let pieces: Vec<_> = all.iter().map(String::as_bytes).collect();
        let expected = format!("{}[REDACTED]{}", before.concat(), after.concat());
        let out = streamed(blind("s3cret!"), &pieces);
        prop_assert_eq!(out, expected.into_bytes());
    }
}

#[test]
fn whole_lines_are_passed_on_at_once_unless_a_text_spans_some() {
    let mut rewrite = blind("s3cret");
    let event = Bytes::from_static(b"data: s3cret\n\n");
    assert_eq!(rewrite.push_all(event.clone()).unwrap(), "data: [REDACTED]\n\n");
    assert_eq!(rewrite.push_all(Bytes::from_static(b"data")).unwrap(), "");
    assert_eq!(rewrite.push_all(Bytes::from_static(b": 1\n")).unwrap(), "data: 1\n");
    let mut rewrite = blind("two\nlines");
    assert_eq!(rewrite.push_all(event).unwrap(), "");
    assert_eq!(rewrite.push_all(Bytes::from_static(b"two\nli")).unwrap(), "");
    assert_eq!(rewrite.push_all(Bytes::from_static(b"nes\n")).unwrap(), "");
    assert_eq!(rewrite.finish_all().unwrap(), "data: s3cret\n\n[REDACTED]\n");
}
