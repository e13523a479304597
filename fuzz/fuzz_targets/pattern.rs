//! Patterns for names of files: nothing breaks them, and none takes long.
#![no_main]

use libfuzzer_sys::fuzz_target;
use osb_execd::fuzz::pattern;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = str::from_utf8(data) else { return };
    let Some((wanted, name)) = text.split_once('\n') else { return };
    let name: String = name.chars().take(255).collect();
    let Ok(found) = pattern(wanted, &name) else { return };

    // What is not this is anything else, where that may be said.
    if let Ok(other) = pattern(&format!("!({wanted})"), &name)
        && !wanted.contains(['|', ')'])
    {
        assert_eq!(found, !other);
    }
    let escaped: String = name.chars().flat_map(|c| ['\\', c]).collect();
    assert_eq!(pattern(&escaped, &name), Ok(true));
});
