/// Whether a test that needs `what` can run. Where it cannot, this says so, and fails if
/// `OSB_REQUIRE` (a list such as `root,docker`) insists that the machine has it.
#[expect(clippy::print_stderr, reason = "a test that does not run must say why")]
#[expect(clippy::disallowed_methods, reason = "tests have no configuration but this variable")]
pub fn required(what: &str, have: bool) -> bool {
    if !have {
        let insisted = std::env::var("OSB_REQUIRE").unwrap_or_default();
        assert!(
            !insisted.split(',').any(|required| required == what),
            "this machine lacks {what}, which OSB_REQUIRE insists on"
        );
        eprintln!("not run: this machine lacks {what}");
    }
    have
}
