//! `osb egress log`.

use jiff::Timestamp;
use opensandbox::api::{
    egress::{Decision, DecisionOutcome, DecisionProtocol, DecisionReason, ReasonKind},
    lifecycle::NetworkAction,
};

use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    table::{Table, spaced},
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    /// Go on with what is decided from now on
    #[arg(short, long)]
    follow: bool,
    /// Columns for people, or JSON with every field, with --follow one object per line
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.target.lifecycle(environment)?;
    if !args.follow {
        let mut log = lifecycle.egress_log(&args.id).await?;
        // The server tells of what ended last at the end, whenever it began.
        log.decisions.sort_by_key(|decision| (decision.at, decision.number));
        match args.output {
            Format::Json => output.json(&log)?,
            Format::Table => output.line(&table(&log.decisions))?,
        }
        return Ok(0);
    }
    let mut decisions = lifecycle.follow_egress_log(&args.id).await?;
    if args.output == Format::Table {
        output.line(&spaced(HEADINGS, WIDTHS))?;
    }
    while let Some(decision) = decisions.next().await? {
        match args.output {
            Format::Json => output.line(&serde_json::to_string(&decision).unwrap_or_default())?,
            Format::Table => {
                let cells = cells(&decision);
                output.line(&spaced(cells.each_ref().map(String::as_str), WIDTHS))?;
            }
        }
    }
    Ok(0)
}

const HEADINGS: [&str; 7] = ["TIME", "VERDICT", "WHAT", "WHERE", "WHY", "TIMES", "OUTCOME"];
const WIDTHS: [usize; 7] = [24, 7, 10, 40, 24, 5, 0];

fn table(decisions: &[Decision]) -> String {
    let mut table = Table::new(HEADINGS);
    for decision in decisions {
        table.row(cells(decision));
    }
    table.render()
}

/// The time, the verdict, what, where, why, how often, and what became of it.
pub(crate) fn cells(decision: &Decision) -> [String; 7] {
    let what = match decision.protocol {
        DecisionProtocol::Dns => "dns",
        DecisionProtocol::Tcp => "tcp",
        DecisionProtocol::Udp => "udp",
        DecisionProtocol::Http => "http",
        DecisionProtocol::Credential => "credential",
    };
    let verdict = match decision.action {
        NetworkAction::Allow => "allow",
        NetworkAction::Deny => "deny",
    };
    [
        moment(decision.at.0),
        verdict.to_owned(),
        what.to_owned(),
        place(decision),
        why_here(decision),
        decision.times.to_string(),
        outcome(decision),
    ]
}

/// A time that is as wide as every other.
fn moment(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// Where to, as people say it: `api.example.com`, `api.example.com:443`, or what was asked for.
pub(super) fn place(decision: &Decision) -> String {
    let host = match (&decision.name, &decision.address) {
        (Some(name), _) => name.clone(),
        (None, Some(address)) if address.contains(':') => format!("[{address}]"),
        (None, Some(address)) => address.clone(),
        (None, None) => "?".to_owned(),
    };
    match decision.protocol {
        DecisionProtocol::Dns => host,
        DecisionProtocol::Tcp | DecisionProtocol::Udp => format!("{host}:{}", decision.port),
        DecisionProtocol::Http | DecisionProtocol::Credential => asked(decision, &host),
    }
}

/// A request: `GET api.example.com:443/path`.
fn asked(decision: &Decision, place: &str) -> String {
    let method = decision.method.as_deref().unwrap_or("?");
    let path = decision.path.as_deref().unwrap_or("/");
    let others = [&*decision.other_methods, &decision.other_paths].concat().join(", ");
    let others = if others.is_empty() { others } else { format!(" (or {others}, by a header)") };
    format!("{method} {place}:{}{path}{others}", decision.port)
}

/// Why, and where a name leads if that is why.
fn why_here(decision: &Decision) -> String {
    let why = why(&decision.reason);
    match (decision.reason.reason, &decision.name, &decision.address) {
        (ReasonKind::Guard, Some(_), Some(address)) => format!("{why} {address}"),
        _ => why,
    }
}

pub(super) fn why(reason: &DecisionReason) -> String {
    let detail = reason.rule.as_deref().or(reason.guarded.as_deref()).or(reason.binding.as_deref());
    let kind = match reason.reason {
        ReasonKind::Rule => "rule",
        ReasonKind::Operator => "operator",
        ReasonKind::Default => "default",
        ReasonKind::Guard => "guarded",
        ReasonKind::Mismatch => "what was sent is for another host",
        ReasonKind::Limit => "limit",
        ReasonKind::Binding => "binding",
    };
    detail.map_or_else(|| kind.to_owned(), |detail| format!("{kind} {detail}"))
}

fn outcome(decision: &Decision) -> String {
    if decision.protocol == DecisionProtocol::Credential {
        let names = decision.credentials.join(", ");
        return match (&decision.withheld, decision.status) {
            (Some(why), _) => format!("{names} withheld: {why}"),
            (None, Some(status)) => format!("{names} given, answered {status}"),
            (None, None) => format!("{names} given, not answered"),
        };
    }
    let Some(end) = &decision.end else { return String::new() };
    let how = match (end.outcome, &end.cut_by) {
        (DecisionOutcome::Done, _) => "done".to_owned(),
        (DecisionOutcome::Unreachable, _) => return "unreachable".to_owned(),
        (DecisionOutcome::Unverified, _) => "unverified".to_owned(),
        (DecisionOutcome::Cut, Some(reason)) => format!("cut ({})", why(reason)),
        (DecisionOutcome::Cut, None) => "cut".to_owned(),
    };
    format!("{how}, {} bytes out, {} back", end.sent_bytes, end.received_bytes)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use opensandbox::testkit::{ScriptedServer, reply};
    use secrecy::SecretString;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    async fn shown(line: &[&str]) -> String {
        const LOG: [&str; 2] = [
            r#"{"number":2,"at":"2030-01-01T00:00:02Z","protocol":"dns","name":"late.test","port":53,"action":"allow","reason":"default","times":1}"#,
            r#"{"number":1,"at":"2030-01-01T00:00:01Z","protocol":"tcp","name":"early.test","port":443,"action":"allow","reason":"rule","rule":"early.test:443","times":1,"end":{"outcome":"done","sentBytes":1,"receivedBytes":1,"durationMs":9}}"#,
        ];
        let server = ScriptedServer::start(|request| match request.uri().query() {
            Some(_) => reply(200, LOG.join("\n") + "\n"),
            None => reply(200, format!(r#"{{"decisions":[{}]}}"#, LOG.join(","))),
        })
        .await;
        let address = server.address().to_string();
        let line = [&["log", "s", "--domain", &address], line].concat();
        let args = Line::try_parse_from(line).unwrap().args;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
        let key = Some(SecretString::from("k".to_owned()));
        let environment = Environment { api_key: key, ..Environment::default() };
        main(args, &environment, &mut output).await.unwrap();
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn what_began_first_is_shown_first() {
        let shown = shown(&[]).await;
        assert!(shown.find("early.test").unwrap() < shown.find("late.test").unwrap(), "{shown}");
    }

    #[tokio::test]
    async fn columns_have_headings_while_they_are_followed() {
        let text = shown(&["-f"]).await;
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.len() == 3 && lines[0].starts_with("TIME"), "{text}");
        let column = lines[0].find("WHERE");
        assert_eq!((lines[1].find("late.test"), lines[2].find("early.test")), (column, column));
        assert!(!shown(&["-f", "-o", "json"]).await.contains("TIME "));
    }

    #[test]
    fn a_name_that_is_guarded_is_shown_with_where_it_leads() {
        let text = r#"{"number":1,"at":"2030-01-01T00:00:00Z","protocol":"tcp","name":"in.test",
            "address":"10.0.0.7","port":443,"action":"deny","reason":"guard","guarded":"private",
            "times":1}"#;
        let decision: Decision = serde_json::from_str(text).unwrap();
        assert_eq!(cells(&decision)[4], "guarded private 10.0.0.7");
    }

    #[test]
    fn a_decision_is_a_line() {
        let text = r#"[
            {"number":1,"at":"2030-01-01T00:00:00Z","protocol":"dns","name":"a.test","port":53,
             "action":"deny","reason":"default","times":3},
            {"number":2,"at":"2030-01-01T00:00:01Z","protocol":"tcp","name":"b.test",
             "address":"192.0.2.1","port":443,"action":"allow","reason":"rule","rule":"*.test",
             "times":1,"end":{"outcome":"cut","cutBy":{"reason":"mismatch"},"sentBytes":0,
             "receivedBytes":7,"durationMs":2}},
            {"number":3,"at":"2030-01-01T00:00:02Z","protocol":"http","name":"c.test","port":443,
             "method":"GET","path":"/x","action":"deny","reason":"default","times":1},
            {"number":4,"at":"2030-01-01T00:00:03Z","protocol":"http","name":"c.test","port":443,
             "method":"GET","path":"/x","otherMethods":["PUT"],"otherPaths":["/y"],
             "action":"deny","reason":"default","times":1},
            {"number":5,"at":"2030-01-01T00:00:04Z","protocol":"tcp","name":"d.test","port":443,
             "action":"allow","reason":"default","times":1,"end":{"outcome":"unverified",
             "sentBytes":9,"receivedBytes":7,"durationMs":2}}]"#;
        let decisions: Vec<Decision> = serde_json::from_str(text).unwrap();
        assert_eq!(
            table(&decisions),
            "TIME                      VERDICT  WHAT  WHERE                                       WHY          TIMES  OUTCOME\n\
             2030-01-01T00:00:00.000Z  deny     dns   a.test                                      default      3\n\
             2030-01-01T00:00:01.000Z  allow    tcp   b.test:443                                  rule *.test  1      \
             cut (what was sent is for another host), 0 bytes out, 7 back\n\
             2030-01-01T00:00:02.000Z  deny     http  GET c.test:443/x                            default      1\n\
             2030-01-01T00:00:03.000Z  deny     http  GET c.test:443/x (or PUT, /y, by a header)  default      1\n\
             2030-01-01T00:00:04.000Z  allow    tcp   d.test:443                                  default      1      \
             unverified, 9 bytes out, 7 back"
        );
    }
}
