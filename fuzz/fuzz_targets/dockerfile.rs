//! Dockerfiles: whatever is written, it is understood or refused with a line that is there, and what is
//! refused can be printed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use osb_build::{Dockerfile, Plan, Problem, Wanted};

fn check(problem: &Problem, data: &[u8]) {
    let lines = String::from_utf8_lossy(data).lines().count();
    assert!((1..=lines + 1).contains(&problem.line), "{problem:?}");
    let is_printed = |char: char| char == '\n' || !char.is_control();
    assert!(problem.text.chars().all(is_printed), "{problem:?}");
    assert!(!problem.what.is_empty() && problem.file == "Dockerfile", "{problem:?}");
}

fuzz_target!(|data: &[u8]| {
    let file = match Dockerfile::parse("Dockerfile", data) {
        Ok(file) => file,
        Err(problem) => return check(&problem, data),
    };
    let mut wanted = Wanted::new();
    wanted.args.insert("A".to_owned(), "value of a".to_owned());
    match Plan::new(file, wanted) {
        Ok(plan) => {
            // Each after those that it needs, and each once.
            let order = plan.order();
            for (at, stage) in order.iter().enumerate() {
                let before = order.get(..at).unwrap_or_default();
                assert!(!before.contains(stage));
                assert!(plan.needs(*stage).iter().all(|needed| before.contains(needed)));
            }
            assert_eq!(order.last(), Some(&plan.target()));
        }
        Err(problem) => check(&problem, data),
    }
});
