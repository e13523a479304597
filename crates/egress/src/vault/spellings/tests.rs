use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    super::{encode::Encoding, patterns::Rewrite, redaction},
    *,
};

const SECRET: &str = "correct/horse+battery=staple-31337";

fn spellings(secrets: &[&str]) -> Spellings {
    Spellings::new(secrets.iter().map(|secret| secret.as_bytes()))
}

fn redacted<'t>(secrets: &Spellings, text: &'t [u8]) -> Cow<'t, [u8]> {
    redaction::redacted(secrets, text, &mut Work::new(usize::MAX)).unwrap()
}

fn is_in(secrets: &Spellings, text: &[u8]) -> bool {
    matches!(redacted(secrets, text), Cow::Owned(_))
}

fn clean(secret: &str, text: &str) -> String {
    String::from_utf8(redacted(&spellings(&[secret]), text.as_bytes()).into_owned()).unwrap()
}

/// A character in one of the ways in which it can be spelt.
fn written(c: char, way: usize) -> String {
    let mut units = [0; 2];
    let units = c.encode_utf16(&mut units);
    let utf8 = c.to_string();
    let bytes = |before: &str| {
        utf8.bytes().map(|b| format!("{before}{b:02X}")).collect::<Vec<_>>().concat()
    };
    let halves = |before: &str| {
        units.iter().map(|u| format!("{before}{u:04x}")).collect::<Vec<_>>().concat()
    };
    match way {
        0 => bytes("%"),
        1 => bytes("%").to_lowercase(),
        2 => bytes("%25"),
        3 => halves("\\u"),
        4 => halves("\\u").to_uppercase().replace('U', "u"),
        5 => format!("&#{};", u32::from(c)),
        6 => format!("&#x{:x};", u32::from(c)),
        7 if c == '/' => "\\/".to_owned(),
        8 if c == '/' => "\\\\\\/".to_owned(),
        9 if c == '"' => "&quot;".to_owned(),
        10 if c == '"' => "\\\"".to_owned(),
        _ => utf8,
    }
}

#[test]
fn what_others_make_of_a_secret_is_taken_out() {
    for text in [
        SECRET,
        "correct/horse%2Bbattery%3Dstaple-31337",
        "correct%2Fhorse+battery=staple-31337",
        "correct%2Fhorse%2Bbattery=staple-31337",
        "correct%252Fhorse%252Bbattery%253Dstaple-31337",
        "correct%25252Fhorse%25252Bbattery%25253Dstaple-31337",
        "correct/horse\\u002bbattery=staple-31337",
        "correct\\/horse\\u002Bbattery\\u003Dstaple-31337",
        "correct\\\\/horse\\\\u002Bbattery\\\\u003Dstaple-31337",
        "correct&#x2F;horse&#43;battery&#61;staple-31337",
        "correct&sol;horse&plus;battery&equals;staple-31337",
        "correct&amp;#x2F;horse&amp;#43;battery=staple-31337",
        "correct\\u0026#x2F;horse\\u0026#43;battery=staple-31337",
        "correct%5C%2Fhorse%5Cu002bbattery%3Dstaple-31337",
        "%63orrect/horse+battery=staple-3133%37",
    ] {
        assert_eq!(clean(SECRET, &format!("<{text}>")), "<[REDACTED]>", "{text}");
    }
    let all: String = SECRET.chars().map(|c| written(c, 3)).collect();
    assert_eq!(clean(SECRET, &all), "[REDACTED]");
}

#[test]
fn nothing_before_a_secret_hides_how_it_begins() {
    // The first letters could be the last of an escape.
    let secret = "c0ffee/123456";
    for before in
        ["%", "%2", "%25", "%c", "\\", "\\u", "\\u00", "\\u000", "&", "&#", "&#x", "&amp;"]
    {
        for spelt in ["c0ffee/123456", "c0ffee%2F123456", "c0ffee\\u002f123456", "%630ffee/123456"]
        {
            let said = clean(secret, &format!("{before}{spelt}"));
            assert!(said.ends_with("[REDACTED]"), "{before}{spelt}: {said}");
            assert!(before.starts_with(said.trim_end_matches("[REDACTED]")), "{said}");
        }
    }
}

#[test]
fn a_secret_that_looks_as_if_it_were_spelt_is_found() {
    for secret in
        ["50%25off-now", "a&lt;b&amp;c", "x\\nope\\\\x", "100%!\"&\\", "%41bcdef", "a%bc\\u0041"]
    {
        let json = Encoding::Json.apply(secret);
        let percent = Encoding::Percent.apply(secret);
        let html = secret.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
        for text in [secret.as_bytes(), &percent, html.as_bytes()] {
            let text = format!("({})", std::str::from_utf8(text).unwrap());
            assert_eq!(clean(secret, &text), "([REDACTED])", "{text}");
        }
        let json = format!("({})", std::str::from_utf8(&json).unwrap());
        assert!(clean(secret, &json).starts_with("([REDACTED]"), "{json}");
    }
}

#[test]
fn of_two_secrets_at_a_place_the_longer_one_is_taken_out() {
    let both = spellings(&["inner-4242", "outer-inner-4242-tail", "outer-inn"]);
    let said = redacted(&both, b"outer-inner-4242-tail, outer-inner, a inner-4242");
    assert_eq!(&*said, b"[REDACTED], [REDACTED]er, a [REDACTED]");
}

#[test]
fn secrets_of_any_length_are_found() {
    let long = "long/".repeat(3000);
    for secret in ["a", "ab", "abc", "a/c", "abcd", "/bcde", &long] {
        for way in 0..8 {
            let spelt: String = secret.chars().map(|c| written(c, way)).collect();
            assert_eq!(clean(secret, &format!("..{spelt}..")), "..[REDACTED]..", "{way}");
        }
    }
}

#[test]
fn of_a_long_secret_every_part_is_taken_out() {
    let secret = (0..400).map(|number| format!("{number}/")).collect::<Vec<_>>().concat();
    let secret = &secret[..3 * PART / 2];
    let spelt = |text: &str| text.chars().map(|c| written(c, 0)).collect::<String>();
    for said in [secret, &spelt(secret), &format!("{}{}", &secret[..700], spelt(&secret[700..]))] {
        assert_eq!(clean(secret, &format!("({said})")), "([REDACTED])");
    }
    // As far as nobody can guess it.
    assert_eq!(clean(secret, &secret[..PART - 1]), secret[..PART - 1]);
    for length in [PART, PART + 1, secret.len() - 1] {
        let rest = &secret[PART..length];
        assert_eq!(clean(secret, &secret[..length]), format!("[REDACTED]{rest}"));
    }
}

#[test]
fn what_follows_a_secret_does_not_hide_it() {
    for (secret, after) in [("abc-100%", "41"), ("abc-100\\", "n"), ("a&b-c&", "lt;")] {
        assert_eq!(clean(secret, &format!("{secret}{after}")), format!("[REDACTED]{after}"));
    }
}

#[test]
fn a_spelling_that_is_endless_ends() {
    for text in ["%25", "\\", "&amp;", "&#1", "corr%25", "\\u005c", "%5C"] {
        let text = text.repeat(10_000);
        assert_eq!(clean(SECRET, &text), text);
    }
}

#[test]
fn a_text_that_repeats_how_a_secret_begins_is_not_slow() {
    let (length, tail) = (16_300, "/\"+&<");
    let repeating = format!("{}{tail}", "a".repeat(length));
    let other: String =
        (0_u32..).flat_map(|n| n.to_string().into_bytes()).map(char::from).take(length).collect();
    let many: Vec<_> = (0..128).map(|number| format!("{repeating}{number}")).collect();
    let many = spellings(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let (repeating, other) = (spellings(&[&repeating]), spellings(&[&other]));
    for text in ["a", "%61", "\\u0061", "a%61"] {
        let text: Vec<u8> = text.bytes().cycle().take(200_000).collect();
        let time = |secrets| {
            let once = || {
                let begin = Instant::now();
                redacted(secrets, &text);
                begin.elapsed()
            };
            (0..5).map(|_| once()).min().unwrap()
        };
        let usual = time(&other);
        assert!(time(&repeating) < usual * 30, "{:?} {usual:?}", time(&repeating));
        assert!(time(&many) < usual * 30, "{:?} {usual:?}", time(&many));
    }
}

#[test]
fn however_bad_a_text_is_the_work_on_it_is_done_in_small_parts() {
    let secret = spellings(&[&format!("{}b", "a".repeat(PART - 2))]);
    let text: Vec<u8> = b"%61".iter().copied().cycle().take(30_000).collect();
    let (mut at, mut turns) = (0, 0);
    while let Seen::Tired(next) = secret.next(&text, at..text.len(), &mut Work::new(Work::TURN)) {
        // So many places were looked at, each as far as a part goes.
        assert!(next > at && (next - at) / 3 * (PART - 64) < 2 * Work::TURN, "{}", next - at);
        (at, turns) = (next, turns + 1);
    }
    assert!(turns > 10, "{turns}");
}

/// The shortest time of some for a text of this content.
fn time(secret: &Spellings, content: &str) -> Duration {
    let text: Vec<u8> = content.bytes().cycle().take(200_000).collect();
    let once = || {
        let begin = Instant::now();
        assert!(!is_in(secret, &text));
        begin.elapsed()
    };
    (0..10).map(|_| once()).min().unwrap()
}

#[test]
fn how_long_it_takes_does_not_tell_the_first_letters() {
    let secret = spellings(&[SECRET]);
    for (right, wrong) in [("c", "z"), ("co", "cz"), ("cor", "coz"), ("correct", "correcz")] {
        let (right, wrong) = (time(&secret, right), time(&secret, wrong));
        assert!(right < wrong * 3 && wrong < right * 3, "{right:?} {wrong:?}");
    }
}

proptest! {
    #[test]
    fn every_mixture_of_spellings_is_found_wherever_it_is_cut(
        secret in "[a-f0-9/+=\"ü😀 .-]{4,40}",
        ways in vec(0..24_usize, 40),
        before in "[a-f0-9%\\\\&u#\n]{0,300}",
        after in "[a-z\n]{0,300}",
        cuts in vec(0..600_usize, 0..6),
    ) {
        let spelt: String = secret.chars().zip(&ways).map(|(c, way)| written(c, *way)).collect();
        prop_assume!(spelt.len() <= secret.len() * LONGER);
        let text = format!("{before}{spelt}{after}");
        let found = spellings(&[&secret]);
        let whole = redacted(&found, text.as_bytes()).into_owned();
        let said = String::from_utf8(whole.clone()).unwrap();
        prop_assert!(said.contains("[REDACTED]"), "{}", text);
        prop_assert!(!is_in(&found, &whole), "{} of {}", said, text);
        let mut rewrite = Rewrite::redacting(std::sync::Arc::new(found), None);
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut out = Vec::new();
        for cut in cuts.windows(2) {
            let piece = bytes::Bytes::copy_from_slice(&text.as_bytes()[cut[0]..cut[1]]);
            out.extend_from_slice(&rewrite.push_all(piece).unwrap());
        }
        out.extend_from_slice(&rewrite.finish_all().unwrap());
        prop_assert_eq!(String::from_utf8(out).unwrap(), said);
    }

    #[test]
    fn of_many_secrets_the_longest_at_a_place_is_taken_out(
        secrets in vec("[gh]{1,7}|[gh]{4}[ghi]{30,34}|[g-p]{3,6}", 1..30),
        parts in vec(0..60_usize, 1..20),
        gaps in vec("[ghiz]{0,40}", 20),
        way in 0..8_usize,
    ) {
        // Parts of secrets, and what is no secret, between them.
        let pieces = parts.iter().zip(&gaps).map(|(part, gap)| {
            let secret = &secrets[part % secrets.len()];
            let part = if part % 3 == 0 { &secret[1..] } else { secret };
            format!("{part}{gap}")
        });
        let text: String = pieces.collect();
        let mut expected = String::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let longest = secrets.iter().filter(|it| rest.starts_with(*it)).map(String::len).max();
            expected.push_str(if longest.is_some() { "[REDACTED]" } else { &rest[..1] });
            rest = &rest[longest.unwrap_or(1)..];
        }
        let secrets = spellings(&secrets.iter().map(String::as_str).collect::<Vec<_>>());
        let said = redacted(&secrets, text.as_bytes()).into_owned();
        prop_assert_eq!(String::from_utf8(said).unwrap(), expected.clone());
        // In other words it is the same.
        let spelt: String = text.chars().map(|c| written(c, way)).collect();
        let said = String::from_utf8(redacted(&secrets, spelt.as_bytes()).into_owned()).unwrap();
        prop_assert_eq!(said.matches("[REDACTED]").count(), expected.matches("[REDACTED]").count());
    }

    #[test]
    fn what_is_no_secret_stays_as_it_is(
        text in vec(select(vec![
            "corr", "correct", "/", "%2F", "horse", "%2B", "\\u002b", "&#43;", "battery", "=", "%", "\\", "&",
            "staple-3133", "\n", "[REDACTED]", "%25", "\\u", "amp;", "c", "\u{fffd}",
        ]), 0..60),
    ) {
        let text = text.concat();
        prop_assert_eq!(clean(SECRET, &text), text);
    }

    #[test]
    fn any_bytes_are_passed_on(text in vec(any::<u8>(), 0..2000)) {
        let secrets = spellings(&[SECRET, "%41\\\"&quot;"]);
        prop_assert_eq!(redacted(&secrets, &text).into_owned(), text);
    }
}
