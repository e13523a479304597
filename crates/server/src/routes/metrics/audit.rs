use std::fmt::{self, Write as _};

use osb_audit::Counts;

/// Adds how many audit entries there were.
pub(super) fn add(mut text: String, counts: Counts) -> Result<String, fmt::Error> {
    let Counts { written, too_many, failed } = counts;
    let name = "opensandbox_audit_entries_total";
    writeln!(text, "# HELP {name} Audit entries that were written.\n# TYPE {name} counter")?;
    writeln!(text, "{name} {written}")?;
    let name = "opensandbox_audit_lost_total";
    writeln!(text, "# HELP {name} Audit entries that were only counted.\n# TYPE {name} counter")?;
    for (reason, count) in [("too-many", too_many), ("failed", failed)] {
        writeln!(text, "{name}{{reason=\"{reason}\"}} {count}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_has_a_reason() {
        let counts = Counts { written: 5, too_many: 2, failed: 3 };
        let text = add(String::new(), counts).unwrap();
        for line in [
            "opensandbox_audit_entries_total 5",
            r#"opensandbox_audit_lost_total{reason="too-many"} 2"#,
            r#"opensandbox_audit_lost_total{reason="failed"} 3"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }
}
