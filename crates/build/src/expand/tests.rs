use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn variables() -> BTreeMap<String, String> {
    [("x", "value"), ("empty", ""), ("path", "/usr/local/lib.tar.gz"), ("two", "a  b")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(word(text, '\\', &variables()).unwrap(), *expected, "{text}");
    }
}

#[test]
fn values_take_the_place_of_names() {
    check(&[
        ("$x", "value"),
        ("${x}s", "values"),
        ("$x.y$empty!", "value.y!"),
        ("$unset|${unset}|", "||"),
        ("a$", "a$"),
        ("$1", ""),
        ("$$x", "x"),
        ("안녕$x", "안녕value"),
    ]);
}

#[test]
fn defaults_depend_on_whether_there_is_a_value() {
    check(&[
        ("${x:-d}|${x-d}", "value|value"),
        ("${empty:-d}|${empty-d}", "d|"),
        ("${unset:-d}|${unset-d}", "d|d"),
        ("${x:+d}|${empty:+d}|${empty+d}|${unset+d}", "d||d|"),
        ("${unset:-${empty:-$x}}", "value"),
        ("${unset:-a b}", "a b"),
        ("${x:?e}|${empty?e}", "value|"),
        ("${unset:-}", ""),
    ]);
    let message = |text| word(text, '\\', &variables()).unwrap_err().0;
    assert_eq!(message("${unset:?give it}"), "unset: give it");
    assert_eq!(message("${empty:?}"), "empty has no value, and it must have one");
    assert_eq!(message("${unset?}"), "unset has no value, and it must have one");
}

#[test]
fn parts_are_cut_off_and_replaced() {
    check(&[
        ("${path#*/}", "usr/local/lib.tar.gz"),
        ("${path##*/}", "lib.tar.gz"),
        ("${path%.*}", "/usr/local/lib.tar"),
        ("${path%%.*}", "/usr/local/lib"),
        ("${path#usr}", "/usr/local/lib.tar.gz"),
        ("${path%/?ib*}", "/usr/local"),
        ("${path/l/L}|${path//l/L}", "/usr/Local/lib.tar.gz|/usr/LocaL/Lib.tar.gz"),
        ("${path//\\//:}", ":usr:local:lib.tar.gz"),
        ("${path/l*l/X}", "/usr/Xib.tar.gz"),
        ("${x//\\}/y}", "value"),
        ("${x/v/$x}", "valuealue"),
    ]);
}

#[test]
fn quotes_and_escapes_take_meaning_away() {
    check(&[
        ("\"$x\"'$x'", "value$x"),
        ("\\$x", "$x"),
        ("\"\\$x\\n\"", "$x\\n"),
        ("'a\\'", "a\\"),
        ("a\\", "a"),
        ("\"a b\"\\ c", "a b c"),
        ("\"it's\"", "it's"),
    ]);
    assert_eq!(word("`$x \\x", '`', &variables()).unwrap(), "$x \\x");
    let of = variables();
    assert_eq!(document("'$x' \"${x}\" \\$x it's", &of).unwrap(), "'value' \"value\" $x it's");
}

#[test]
fn blanks_of_values_separate_unless_quoted() {
    let words = |text| super::words(text, '\\', &variables()).unwrap();
    assert_eq!(words("1$two 2"), ["1a", "b", "2"]);
    assert_eq!(words("\"$two\" $empty x\\ y"), ["a  b", "x y"]);
    assert_eq!(words("''"), [""]);
}

#[test]
fn what_is_wrong_is_said() {
    for text in ["${", "${}", "${x", "${x:", "${x:=a}", "${x^}", "${x:-a", "\"a", "'a", "${x/a}"] {
        assert!(word(text, '\\', &variables()).is_err(), "{text}");
    }
    let deep = format!("{}{}", "${a:-".repeat(100), "}".repeat(100));
    assert!(word(&deep, '\\', &variables()).unwrap_err().0.contains("nested"));
}

#[test]
fn neither_length_nor_patterns_can_be_made_to_explode() {
    let long: BTreeMap<_, _> = [("x".to_owned(), "a".repeat(LONGEST / 2 + 1))].into();
    assert!(word("$x$x", '\\', &long).unwrap_err().0.contains("bytes"));
    assert!(word("${x//a/bbbb}", '\\', &long).unwrap_err().0.contains("bytes"));
    let pattern = "a*".repeat(2000);
    assert!(word(&format!("${{x//{pattern}b/c}}"), '\\', &long).unwrap_err().0.contains("simpler"));
}

proptest! {
    #[test]
    fn any_text_is_expanded_or_refused(text in "[ -~]{0,60}", escape in "[\\\\`]") {
        let escape = escape.chars().next().unwrap();
        word(&text, escape, &variables()).ok();
        super::words(&text, escape, &variables()).ok();
        document(&text, &variables()).ok();
    }

    #[test]
    fn quoted_text_stays_as_it_is(text in "[^']{0,40}") {
        prop_assert_eq!(word(&format!("'{text}'"), '\\', &variables()).unwrap(), text);
    }

    #[test]
    fn cutting_leaves_a_part_of_the_value(value in "[ab/]{0,12}", pattern in "[ab/*?]{0,5}") {
        let of: BTreeMap<_, _> = [("v".to_owned(), value.clone())].into();
        let cut = |how: &str| word(&format!("${{v{how}{pattern}}}"), '\\', &of).unwrap();
        prop_assert!(value.ends_with(&cut("##")) && value.ends_with(&cut("#")));
        prop_assert!(value.starts_with(&cut("%%")) && value.starts_with(&cut("%")));
        prop_assert!(cut("##").len() <= cut("#").len() && cut("%%").len() <= cut("%").len());
    }
}
