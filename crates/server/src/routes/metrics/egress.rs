use std::fmt::{self, Write as _};

use osb_egress::{Counts, Protocol};

/// Adds what all sandboxes sent and tried to send.
pub(super) fn add(mut text: String, counts: &Counts) -> Result<String, fmt::Error> {
    let Counts { allowed, denied, open, sent, received, told } = counts;
    let name = "opensandbox_egress_decisions_total";
    writeln!(text, "# HELP {name} What sandboxes tried in the network.\n# TYPE {name} counter")?;
    let mut line = |protocol: &Protocol, action, reason, count| {
        let protocol = protocol.as_str();
        let labels = format!(r#"protocol="{protocol}",action="{action}",reason="{reason}""#);
        writeln!(text, "{name}{{{labels}}} {count}")
    };
    for (protocol, count) in allowed {
        line(protocol, "allow", "", *count)?;
    }
    for (protocol, reason, count) in denied {
        line(protocol, "deny", reason, *count)?;
    }
    for (name, kind, help, count) in [
        ("connections", "gauge", "Connections of sandboxes that are open.", open),
        ("sent_bytes_total", "counter", "Bytes from sandboxes.", sent),
        ("received_bytes_total", "counter", "Bytes to sandboxes.", received),
    ] {
        let name = format!("opensandbox_egress_{name}");
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {count}")?;
    }
    let name = "opensandbox_egress_deny_webhook_total";
    writeln!(text, "# HELP {name} Denials for the operator's webhook.\n# TYPE {name} counter")?;
    for (outcome, count) in told {
        writeln!(text, "{name}{{outcome=\"{outcome}\"}} {count}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_a_number_of_its_own() {
        let counts = Counts {
            allowed: vec![(Protocol::Tcp, 2)],
            denied: vec![(Protocol::Dns, "guard", 3)],
            open: 1,
            sent: 5,
            received: 7,
            told: [("delivered", 4), ("failed", 0), ("dropped", 0)],
        };
        let text = add(String::new(), &counts).unwrap();
        for line in [
            r#"opensandbox_egress_decisions_total{protocol="tcp",action="allow",reason=""} 2"#,
            r#"opensandbox_egress_decisions_total{protocol="dns",action="deny",reason="guard"} 3"#,
            "opensandbox_egress_connections 1",
            "opensandbox_egress_received_bytes_total 7",
            r#"opensandbox_egress_deny_webhook_total{outcome="delivered"} 4"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }
}
