use proptest::prelude::*;

use super::*;

fn check(pattern: &str, yes: &[&str], no: &[&str]) {
    let parsed = Pattern::parse(pattern).unwrap();
    for name in yes {
        assert!(parsed.matches(name), "{pattern} must match {name}");
    }
    for name in no {
        assert!(!parsed.matches(name), "{pattern} must not match {name}");
    }
}

#[test]
fn patterns_mean_what_people_expect() {
    check("**", &["", "a", ".hidden", "a\u{2028}b", "ü"], &[]);
    check("*.txt", &["a.txt", ".txt"], &["a.txt.gz", "txt"]);
    check("**/*.rs", &["a.rs"], &["a.c"]);
    check("a/**/b", &[], &["b", "ab"]);
    check("?", &["ü", "x"], &["", "xy"]);
    check("[a-c]?", &["ax", "bü"], &["dx", "a"]);
    check("[!a-c]", &["d", "ü"], &["a", "c"]);
    check("[^x]", &["y"], &["x"]);
    check("[]x-]", &["]", "x", "-"], &["a"]);
    check(r"[\]\-a]", &["]", "-", "a"], &[r"\"]);
    check("{a,b}.{txt,md}", &["a.txt", "b.md"], &["c.txt", "a.rs"]);
    check("x{a,{b,c}d,}y", &["xay", "xbdy", "xcdy", "xy"], &["xbcy", "xby"]);
    check("{*.a,**/b}", &["q.a", "b"], &["c"]);
    check(r"\*\{\?", &["*{?"], &["x{y"]);
    check("!(*.txt)", &["a.md", "a.txt.gz", ""], &["a.txt"]);
    check("!(*.txt|*.md)", &["a.rs"], &["a.txt", "a.md"]);
    check("a!(b|c)d", &["ad", "axd", "abbd"], &["abd", "acd", "d"]);
    check("!x", &["!x"], &["x"]);
    check("a,b|c)", &["a,b|c)"], &[]);
}

#[test]
fn what_is_not_a_pattern_is_told() {
    for (pattern, error) in [
        ("[a", PatternError::Open('[')),
        ("[]", PatternError::Open('[')),
        ("{a,b", PatternError::Open('{')),
        ("!(a", PatternError::Open('(')),
        ("a\\", PatternError::Escape),
        ("[z-a]", PatternError::Range),
        ("!(!(a))", PatternError::Negations),
    ] {
        assert_eq!(Pattern::parse(pattern), Err(error), "{pattern}");
    }
    assert_eq!(Pattern::parse(&"{".repeat(17)), Err(PatternError::TooDeep));
    assert_eq!(Pattern::parse(&"a".repeat(1025)), Err(PatternError::TooLong));
}

#[test]
fn no_pattern_takes_long() {
    let name = "a".repeat(255);
    for pattern in ["*a".repeat(500) + "b", "{a,aa,*}".repeat(120) + "b", "!(a*)*".repeat(40)] {
        Pattern::parse(&pattern).unwrap().matches(&name);
    }
    let longest = format!("*!({}b)", "*a".repeat(60));
    Pattern::parse(&longest).unwrap().matches(&name);
    let too_long = format!("*!({}b)", "*a".repeat(70));
    assert_eq!(Pattern::parse(&too_long), Err(PatternError::Negations));
}

/// The same, by trying everything: slow, and plain enough to be believed.
fn naive(pieces: &[Piece], name: &[char], at: usize) -> bool {
    let Some((piece, rest)) = pieces.split_first() else { return at == name.len() };
    let ends = |pieces: &[Piece]| -> Vec<usize> {
        (at..=name.len()).filter(|&end| naive(pieces, &name[..end], at)).collect()
    };
    match piece {
        Piece::Literal(c) => name.get(at) == Some(c) && naive(rest, name, at + 1),
        Piece::One => at < name.len() && naive(rest, name, at + 1),
        Piece::Any => (at..=name.len()).any(|end| naive(rest, name, end)),
        Piece::Directories => at == 0 && naive(rest, name, at),
        Piece::Class { negated, ranges } => {
            name.get(at).is_some_and(|c| {
                ranges.iter().any(|(first, last)| first <= c && c <= last) != *negated
            }) && naive(rest, name, at + 1)
        }
        Piece::Either(choices) => {
            choices.iter().any(|choice| ends(choice).into_iter().any(|end| naive(rest, name, end)))
        }
        Piece::Not(choices) => {
            let refused: Vec<usize> = choices.iter().flat_map(|choice| ends(choice)).collect();
            (at..=name.len()).any(|end| !refused.contains(&end) && naive(rest, name, end))
        }
    }
}

proptest! {
    #[test]
    fn the_matcher_agrees_with_one_that_tries_everything(
        pattern in r"([ab?*]|\[[ab]\]|\[!a\]|\{[ab*]{0,2},[ab?]{0,2}\}|!\([ab]|\||\)){0,8}",
        name in "[abc]{0,7}",
    ) {
        if let Ok(parsed) = Pattern::parse(&pattern) {
            let chars: Vec<char> = name.chars().collect();
            prop_assert_eq!(parsed.matches(&name), naive(&parsed.0, &chars, 0));
        }
    }

    #[test]
    fn nothing_panics(pattern in "\\PC{0,40}", name in "\\PC{0,40}") {
        if let Ok(parsed) = Pattern::parse(&pattern) {
            parsed.matches(&name);
        }
    }
}
