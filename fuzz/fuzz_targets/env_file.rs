//! The environment file: nothing in it can break a command, and what the published clients write
//! comes back as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// An assignment as the published clients write it.
fn written(value: &str) -> String {
    if !value.contains('\'') {
        return format!("KEY='{value}'\n");
    }
    let escapes = [('\\', "\\\\"), ('"', "\\\""), ('\n', "\\n"), ('\r', "\\r"), ('\t', "\\t")];
    let escaped: String = value
        .chars()
        .map(|c| {
            let escape = escapes.iter().find(|(from, _)| *from == c);
            escape.map_or_else(|| c.to_string(), |(_, to)| (*to).to_owned())
        })
        .collect();
    format!("KEY=\"{escaped}\"\n")
}

fuzz_target!(|text: &str| {
    for (name, value) in osb_execd::fuzz::env_file(text) {
        assert!(!name.is_empty() && !name.contains(['\0', '=']), "{name:?}");
        assert!(!value.contains('\0'), "{value:?}");
    }
    // In double quotes a dollar may mean a variable, in the clients' own words.
    let dollar_is_plain = !(text.contains('\'') && text.contains('$'));
    if !text.contains('\0') && dollar_is_plain {
        let read = osb_execd::fuzz::env_file(&written(text));
        assert_eq!(read.get("KEY").map(String::as_str), Some(text));
    }
});
