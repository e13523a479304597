//! `.dockerignore`: the first line is a path, the rest are rules about it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use osb_build::Ignore;

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (path, rules) = data.split_at(end);
    let path = String::from_utf8_lossy(path);
    match Ignore::parse(".dockerignore", rules) {
        Ok(ignore) => {
            let is_excluded = ignore.excludes(&path);
            // The last rule that speaks of it decides, and these two speak of everything.
            for (rule, expected) in [("**", true), ("!**", false)] {
                let more = [rules, b"\n", rule.as_bytes()].concat();
                if let Ok(ignore) = Ignore::parse(".dockerignore", &more)
                    && !path.is_empty()
                    && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
                {
                    assert_eq!(ignore.excludes(&path), expected, "{path:?} {rule}");
                }
            }
            assert_eq!(ignore.excludes(&path), is_excluded);
        }
        Err(problem) => {
            let lines = String::from_utf8_lossy(rules).lines().count();
            assert!((1..=lines + 1).contains(&problem.line), "{problem:?}");
        }
    }
});
