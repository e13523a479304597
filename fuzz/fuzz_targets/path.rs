//! Paths as callers write them: always absolute in the end, and only what is a variable or a home
//! is replaced.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

/// The replacement of variables, one character at a time.
fn reference(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let found = ["${BASE}", "$BASE"].into_iter().find_map(|form| {
            let after = rest.strip_prefix(form)?;
            let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '_';
            (form.ends_with('}') || !after.starts_with(goes_on)).then_some(after)
        });
        if let Some(after) = found {
            out.push_str("/base");
            rest = after;
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

fuzz_target!(|given: &str| {
    assert_eq!(osb_execd::fuzz::variables(given), reference(given));
    let path = osb_execd::fuzz::path(given);
    assert!(path.is_absolute(), "{path:?}");
    if !given.contains(['$', '~']) {
        assert_eq!(path, Path::new("/work").join(given));
    }
    if let Some(rest) = given.strip_prefix("~/").filter(|rest| !rest.contains('$')) {
        assert_eq!(path, Path::new("/home/me").join(rest.trim_start_matches('/')));
    }
});
