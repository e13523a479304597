//! `osb egress policy`, `set`, `allow`, `deny` and `rm`.

use opensandbox::{
    Lifecycle,
    api::lifecycle::{NetworkAction, NetworkPolicy, NetworkRule},
};

use crate::{
    env::Environment,
    failure::Failure,
    input,
    network::{self, Destination},
    output::Output,
    table::{Table, clean},
    target::Target,
    view::{View, or_dash},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    #[command(flatten)]
    view: View,
}

/// Shows the rules in the order in which they are asked.
pub(crate) async fn show(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let status = args.view.lifecycle(environment)?.policy(&args.id).await?;
    args.view.show(&status.policy, output, |policy| describe(policy, &status.operator))
}

/// The ports of a rule about requests that names none.
const HTTP_PORTS: [u16; 2] = [80, 443];

fn describe(policy: &NetworkPolicy, operator: &[NetworkRule]) -> String {
    let mut table = Table::new(["ACTION", "TARGET", "PORTS", "METHODS", "PATHS", "BY"]);
    let list = |texts: &Option<Vec<String>>| or_dash(texts.as_ref().map(|texts| texts.join(",")));
    let operators = operator.iter().map(|rule| (rule, "operator"));
    let all = operators.chain(policy.egress.iter().map(|rule| (rule, "policy")));
    for (NetworkRule { action, target, ports, methods, paths }, by) in all {
        let usual = (methods.is_some() || paths.is_some()).then(|| HTTP_PORTS.to_vec());
        let ports = ports.clone().or(usual);
        let ports = ports.map(|ports| ports.iter().map(ToString::to_string).collect());
        let action = word(*action).to_owned();
        let by = by.to_owned();
        table.row([action, target.clone(), list(&ports), list(methods), list(paths), by]);
    }
    let default = word(policy.default_action.unwrap_or(NetworkAction::Deny)).to_owned();
    let none = || list(&None);
    let rest = match policy.default_action {
        Some(NetworkAction::Allow) => PUBLIC,
        Some(NetworkAction::Deny) | None => "everything else",
    };
    let rest = rest.to_owned();
    table.row([default, rest, none(), none(), none(), "default".to_owned()]);
    table.render()
}

/// What the default allows, since addresses that are guarded need a rule of their own.
const PUBLIC: &str = "everything else that is public";

fn word(action: NetworkAction) -> &'static str {
    match action {
        NetworkAction::Allow => "allow",
        NetworkAction::Deny => "deny",
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// The sandbox
    id: String,
    /// The policy in JSON, as `osb egress learn` prints it; `-` is standard input
    file: String,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn set(args: SetArgs, environment: &Environment) -> Result<u8, Failure> {
    let policy = input::read(&args.file, network::parse)?;
    args.target.lifecycle(environment)?.replace_policy(&args.id, &policy).await?;
    Ok(0)
}

#[derive(Debug, clap::Args)]
pub(crate) struct DefaultArgs {
    /// The sandbox
    id: String,
    /// What happens to all that no rule is about
    action: Action,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Action {
    /// It is reached, unless it is guarded: the host, private networks, metadata services
    Allow,
    /// It is not reached
    Deny,
}

pub(crate) async fn default(args: DefaultArgs, environment: &Environment) -> Result<u8, Failure> {
    let default_action = Some(match args.action {
        Action::Allow => NetworkAction::Allow,
        Action::Deny => NetworkAction::Deny,
    });
    let change = NetworkPolicy { default_action, egress: Vec::new() };
    args.target.lifecycle(environment)?.add_rules(&args.id, &change).await?;
    Ok(0)
}

#[derive(Debug, clap::Args)]
pub(crate) struct RuleArgs {
    /// The sandbox
    id: String,
    /// Names, `*.domain`s, addresses or ranges
    #[arg(required = true, value_name = "TARGET[:PORT,…]")]
    targets: Vec<Destination>,
    /// Only requests of HTTP with this method, at the ports 80 and 443 unless others are given; may
    /// be repeated
    #[arg(long = "method", value_name = "METHOD")]
    methods: Vec<String>,
    /// Only requests for this path, or for all that begin like it if it ends in `*`; may be repeated
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<String>,
    /// Keep all rules that are there about the same target, behind the new one
    #[arg(long)]
    add: bool,
    /// Drop all rules that are there about the same target, also those that say more or something
    /// else
    #[arg(long, conflicts_with = "add")]
    replace: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn change(
    args: RuleArgs,
    action: NetworkAction,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.target.lifecycle(environment)?;
    change_at(&lifecycle, &args, action, output).await
}

async fn change_at(
    lifecycle: &Lifecycle,
    args: &RuleArgs,
    action: NetworkAction,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let given = |texts: &Vec<String>| (!texts.is_empty()).then(|| texts.clone());
    let (methods, paths) = (given(&args.methods), given(&args.paths));
    let rule = |to: &Destination| NetworkRule {
        methods: methods.clone(),
        paths: paths.clone(),
        ..to.rule(action)
    };
    let rules: Vec<_> = args.targets.iter().map(rule).collect();
    for method in args.methods.iter().filter(|method| !METHODS.contains(&method.as_str())) {
        output.say(&clean(&format!("no method of HTTP is known as {method}: is it a slip?")));
    }
    let before = lifecycle.policy(&args.id).await?.policy;
    if !args.add && !args.replace {
        refuse_losses(&before, &rules)?;
    }
    let after = if args.add {
        let policy = NetworkPolicy { default_action: None, egress: rules.clone() };
        lifecycle.add_rules(&args.id, &policy).await?
    } else {
        lifecycle.merge_rules(&args.id, &rules).await?
    };
    for gone in before.egress.iter().filter(|rule| !after.policy.egress.contains(rule)) {
        output.say(&clean(&format!("replaced: {}", sentence(gone))));
    }
    for note in rules.iter().filter_map(|rule| network::outranked(rule, &after.operator)) {
        output.say(&clean(&note));
    }
    if action == NetworkAction::Allow
        && after.policy.default_action == Some(NetworkAction::Allow)
        && !before.egress.iter().any(|rule| rule.action == NetworkAction::Deny)
    {
        let id = &args.id;
        output.say(&format!(
            "the default is allow, so {PUBLIC} stays reachable: osb egress default {id} deny"
        ));
    }
    Ok(0)
}

/// The methods that people use.
const METHODS: [&str; 20] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "QUERY",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "SEARCH",
    "PURGE",
    "LINK",
    "UNLINK",
];

/// Rules about the same target go when a new one comes. Of those that say more than it does, or are
/// about other requests, somebody has to say so.
fn refuse_losses(policy: &NetworkPolicy, new: &[NetworkRule]) -> Result<(), Failure> {
    let is_lost = |old: &&NetworkRule| {
        let mut about = new.iter().filter(|new| key(&new.target) == key(&old.target)).peekable();
        about.peek().is_some() && !about.any(|new| says_as_much(new, old))
    };
    let Some(lost) = policy.egress.iter().find(is_lost) else { return Ok(()) };
    Err(Failure::Usage(clean(&format!(
        "there is a rule about the same target that would be lost: {}; --add keeps it behind the \
         new one, --replace drops it",
        sentence(lost)
    ))))
}

/// Whether nothing is lost of the old rule but what the new one is about.
fn says_as_much(new: &NetworkRule, old: &NetworkRule) -> bool {
    if new.is_about_requests() || old.is_about_requests() {
        let is_whole = new.ports.is_none() && !new.is_about_requests();
        let is_same =
            (&new.ports, &new.methods, &new.paths) == (&old.ports, &old.methods, &old.paths);
        return is_same || (is_whole && new.action == NetworkAction::Deny);
    }
    match (&new.ports, &old.ports) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(new), Some(old)) => old.iter().all(|port| new.contains(port)),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmArgs {
    /// The sandbox
    id: String,
    /// The targets of the rules, as `osb egress policy` shows them; all rules about one are dropped
    #[arg(required = true, value_name = "TARGET", value_parser = target_alone)]
    targets: Vec<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn rm(
    args: RmArgs,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    rm_at(&args.target.lifecycle(environment)?, &args, output).await
}

async fn rm_at(
    lifecycle: &Lifecycle,
    args: &RmArgs,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let rules = lifecycle.policy(&args.id).await?.policy.egress;
    let (there, absent): (Vec<_>, Vec<_>) = args
        .targets
        .iter()
        .cloned()
        .partition(|target| rules.iter().any(|rule| key(&rule.target) == key(target)));
    if !there.is_empty() {
        lifecycle.delete_rules(&args.id, &there).await?;
    }
    for target in &absent {
        output.say(&clean(&format!("no rule is about {target}")));
    }
    Ok(u8::from(!absent.is_empty()))
}

/// What servers take for the same target: case and a dot at the end do not count.
fn key(target: &str) -> String {
    let target = target.trim();
    target.strip_suffix('.').unwrap_or(target).to_ascii_lowercase()
}

/// A target as rules have it, without the ports that flags take.
fn target_alone(text: &str) -> Result<String, String> {
    match text.parse::<Destination>() {
        Ok(destination) if destination.has_ports() => {
            let target = destination.target();
            Err(format!("rules are dropped by their target alone, whatever their ports: {target}"))
        }
        _ => Ok(text.to_owned()),
    }
}

/// A rule on one line: `allow api.example.com:443 GET /a/*`.
fn sentence(rule: &NetworkRule) -> String {
    let NetworkRule { action, target, ports, methods, paths } = rule;
    let bracketed = if target.contains(':') && ports.is_some() {
        format!("[{target}]")
    } else {
        target.clone()
    };
    let ports = ports.as_ref().map(|ports| {
        let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
        format!(":{}", ports.join(","))
    });
    let words = [
        Some(format!("{} {bracketed}{}", word(*action), ports.unwrap_or_default())),
        methods.as_ref().map(|methods| methods.join(",")),
        paths.as_ref().map(|paths| paths.join(",")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use http::Method;
    use opensandbox::testkit::{ScriptedServer, reply};

    use super::*;

    #[derive(Debug, clap::Parser)]
    enum Line {
        Change(RuleArgs),
        Rm(RmArgs),
    }

    const BEFORE: &str = r#"[{"action":"allow","target":"a.example","ports":[443]},{"action":"allow","target":"b.example","methods":["GET"],"paths":["/x"]},{"action":"allow","target":"c.example"}]"#;
    const AFTER: &str =
        r#"[{"action":"deny","target":"a.example"},{"action":"allow","target":"c.example"}]"#;

    async fn said(line: &[&str]) -> (u8, String, Vec<String>) {
        let server = ScriptedServer::start(|request| {
            let rules = if request.method() == Method::GET { BEFORE } else { AFTER };
            let policy = format!(r#"{{"defaultAction":"deny","egress":{rules}}}"#);
            reply(200, format!(r#"{{"status":"ok","mode":"enforcing","policy":{policy}}}"#))
        })
        .await;
        let lifecycle = Lifecycle::new(server.connection().api_key("k").unwrap());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
        let code = match Line::try_parse_from([&["egress"], line].concat()).unwrap() {
            Line::Change(args) => {
                change_at(&lifecycle, &args, NetworkAction::Deny, &mut output).await
            }
            Line::Rm(args) => rm_at(&lifecycle, &args, &mut output).await,
        };
        let method = |call: &String| call.split(' ').next().unwrap_or_default().to_owned();
        let methods = server.calls().iter().map(method).collect();
        (code.unwrap(), String::from_utf8(err).unwrap(), methods)
    }

    #[test]
    fn what_says_more_than_the_new_rule_is_not_dropped_unasked() {
        let rule = |text: &str| -> NetworkRule { serde_json::from_str(text).unwrap() };
        let whole = r#"{"action":"deny","target":"A.test"}"#;
        let port = r#"{"action":"allow","target":"a.test","ports":[443]}"#;
        let ports = r#"{"action":"deny","target":"a.test","ports":[80,443]}"#;
        let get = r#"{"action":"allow","target":"a.test","methods":["GET"],"paths":["/a/*"]}"#;
        let delete = r#"{"action":"deny","target":"a.test","methods":["DELETE"]}"#;
        let opened = r#"{"action":"allow","target":"a.test"}"#;
        let other = r#"{"action":"deny","target":"b.test","methods":["GET"]}"#;
        for (old, new, is_fine) in [
            (whole, delete, false),
            (whole, port, false),
            (whole, opened, true),
            (port, whole, true),
            (port, ports, true),
            (ports, port, false),
            (get, delete, false),
            (get, get, true),
            (get, whole, true),
            (delete, opened, false),
            (other, whole, true),
        ] {
            let policy = NetworkPolicy { default_action: None, egress: vec![rule(old)] };
            let refused = refuse_losses(&policy, &[rule(new)]);
            assert_eq!(refused.is_ok(), is_fine, "{old} {new}");
        }
        let policy = NetworkPolicy { default_action: None, egress: vec![rule(whole)] };
        let failure = refuse_losses(&policy, &[rule(port), rule(delete)]).unwrap_err();
        let text = failure.report().unwrap();
        assert!(text.contains("lost: deny A.test; --add keeps"), "{text}");
    }

    #[tokio::test]
    async fn rules_are_added_beside_others_if_that_is_asked_for() {
        let (code, err, calls) =
            said(&["change", "s", "b.example", "--method", "FETCH", "--add"]).await;
        assert_eq!((code, calls), (0, vec!["GET".to_owned(), "PATCH".to_owned()]));
        assert!(err.starts_with("osb: no method of HTTP is known as FETCH"), "{err}");
        let both = ["egress", "change", "s", "b.example", "--add", "--replace"];
        assert!(Line::try_parse_from(both).is_err());
    }

    #[tokio::test]
    async fn rules_that_had_to_go_are_named() {
        let (code, err, _) = said(&["change", "s", "a.example", "b.example"]).await;
        assert_eq!(
            (code, err.as_str()),
            (0, "osb: replaced: allow a.example:443\nosb: replaced: allow b.example GET /x\n")
        );
    }

    #[tokio::test]
    async fn dropping_what_is_not_there_is_a_failure() {
        let (code, err, calls) = said(&["rm", "s", "A.example.", "z.example"]).await;
        assert_eq!((code, err.as_str()), (1, "osb: no rule is about z.example\n"));
        assert_eq!(calls, ["GET", "DELETE"]);
        let (code, _, calls) = said(&["rm", "s", "z.example"]).await;
        assert_eq!((code, calls), (1, vec!["GET".to_owned()]));
        assert_eq!(said(&["rm", "s", "c.example"]).await.0, 0);
    }

    #[test]
    fn rules_are_dropped_by_their_target_alone() {
        let error = |target| Line::try_parse_from(["egress", "rm", "s", target]).unwrap_err();
        let text = error("a.example:443").to_string();
        assert!(text.contains("by their target alone") && text.contains(": a.example"), "{text}");
        assert!(Line::try_parse_from(["egress", "rm", "s", "2001:db8::1"]).is_ok());
    }

    #[test]
    fn rules_are_shown_in_order_and_the_default_last() {
        let policy = serde_json::from_str(
            r#"{"defaultAction":"deny","egress":[{"action":"allow","target":"a.example","ports":[80,443]},{"action":"deny","target":"*.example","methods":["PUT","POST"],"paths":["/a/*"]}]}"#,
        );
        assert_eq!(
            describe(&policy.unwrap(), &[NetworkRule::new(NetworkAction::Deny, "*.tracker")]),
            "ACTION  TARGET           PORTS   METHODS   PATHS  BY\n\
             deny    *.tracker        -       -         -      operator\n\
             allow   a.example        80,443  -         -      policy\n\
             deny    *.example        80,443  PUT,POST  /a/*   policy\n\
             deny    everything else  -       -         -      default"
        );
    }
}
