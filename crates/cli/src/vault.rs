//! `osb vault`: the credentials that requests of a sandbox are given.

pub(crate) mod content;

use std::fmt::Write as _;

use opensandbox::api::egress::{
    AuthType, BindingSummary, CredentialSummary, Match, Scheme, SourceType, VaultState,
};

use crate::{
    env::Environment, failure::Failure, input, output::Output, table::Table, target::Target,
    view::View,
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make the vault of a sandbox
    ///
    /// The sandbox must have been made for it, with `osb sandbox create --vault FILE`, and have none
    /// now: after `osb vault rm`, or after a restart of a server that does not keep vaults.
    #[command(after_help = FILE)]
    Create(WriteArgs),
    /// Show the vault of a sandbox, without its secrets
    Get(GetArgs),
    /// Change the vault of a sandbox, wholly or not at all
    ///
    /// The file is JSON with `credentials` and `bindings`, each with lists to `add`, to `replace` and
    /// of names to `delete`; with `expectedRevision` it is refused if somebody was faster.
    #[command(after_help = CHANGES)]
    Patch(WriteArgs),
    /// Delete the vault of a sandbox with everything in it
    Rm(RmArgs),
}

const FILE: &str = r#"The file, for which - is standard input:
  {"credentials": [{"name": "github", "source": {"value": "..."}}],
   "bindings": [{"name": "api", "match": {"hosts": ["api.github.com"]},
                 "auth": {"type": "bearer", "credential": "github"}}]}

An `auth` that puts the secret where a request has a placeholder:
  {"type": "passthrough", "substitutions":
   [{"credential": "maps", "placeholder": "__MAPS_KEY__", "in": ["query"]}]}"#;

const CHANGES: &str = r#"The file, for which - is standard input:
  {"expectedRevision": 1,
   "credentials": {"replace": [{"name": "github", "source": {"value": "..."}}]},
   "bindings": {"delete": ["old-api"],
                "add": [{"name": "api", "match": {"hosts": ["api.github.com"]},
                         "auth": {"type": "bearer", "credential": "github"}}]}}"#;

#[derive(Debug, clap::Args)]
pub(crate) struct WriteArgs {
    /// The sandbox
    id: String,
    /// What to write, in JSON; `-` is standard input
    file: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// The sandbox
    id: String,
    #[command(flatten)]
    view: View,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmArgs {
    /// The sandbox
    id: String,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(
    command: Command,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    match command {
        Command::Create(args) => {
            let content = input::read(&args.file, content::create)?;
            let lifecycle = args.target.lifecycle(environment)?;
            lifecycle.vault(&args.id).await?.create(&content).await?;
        }
        Command::Patch(args) => {
            let changes = input::read(&args.file, content::patch)?;
            let lifecycle = args.target.lifecycle(environment)?;
            lifecycle.vault(&args.id).await?.patch(&changes).await?;
        }
        Command::Get(args) => {
            let vault = args.view.lifecycle(environment)?.vault(&args.id).await?.get().await?;
            return args.view.show(&vault, output, describe);
        }
        Command::Rm(args) => {
            args.target.lifecycle(environment)?.vault(&args.id).await?.delete().await?;
        }
    }
    Ok(0)
}

fn describe(vault: &VaultState) -> String {
    let mut credentials = Table::new(["CREDENTIAL", "SOURCE", "REVISION"]);
    for CredentialSummary { name, source_type, revision } in &vault.credentials {
        let source = match source_type {
            SourceType::Inline => "inline",
            SourceType::Env => "env",
            SourceType::File => "file",
            SourceType::Vault => "vault",
        };
        credentials.row([name.clone(), source.to_owned(), revision.to_string()]);
    }
    let mut bindings = Table::new(["BINDING", "AUTH", "METHODS", "HOSTS", "PATHS"]);
    for BindingSummary { name, requests, auth, .. } in &vault.bindings {
        let Match { schemes, hosts, methods, paths, .. } = requests;
        let auth = match (auth.kind, &auth.name) {
            (AuthType::ApiKey, Some(header)) => format!("header {header}"),
            (AuthType::ApiKey, None) => "header".to_owned(),
            (AuthType::Bearer, _) => "bearer".to_owned(),
            (AuthType::Basic, _) => "basic".to_owned(),
            (AuthType::CustomHeaders, _) => "headers".to_owned(),
            (AuthType::Passthrough, _) => "passthrough".to_owned(),
        };
        let plain = if schemes.contains(&Scheme::Http) { " (http, too)" } else { "" };
        let hosts = format!("{}{plain}", hosts.join(","));
        bindings.row([name.clone(), auth, methods.join(","), hosts, paths.join(",")]);
    }
    let mut text = format!("revision {}\n\n", vault.revision);
    writeln!(text, "{}\n\n{}", credentials.render(), bindings.render())
        .expect("writing to a string succeeds");
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vault_is_shown_with_what_it_is_for() {
        let vault = serde_json::from_str(
            r#"{"revision":2,"credentials":[{"name":"gh","sourceType":"env","revision":1}],
            "bindings":[{"name":"api","revision":2,"match":{"schemes":["https"],"hosts":["a.test"],
            "methods":["GET","PUT"],"paths":["/x/*"]},"auth":{"type":"apiKey","name":"X-Key"}}]}"#,
        );
        assert_eq!(
            describe(&vault.unwrap()),
            "revision 2\n\n\
             CREDENTIAL  SOURCE  REVISION\n\
             gh          env     1\n\n\
             BINDING  AUTH          METHODS  HOSTS   PATHS\n\
             api      header X-Key  GET,PUT  a.test  /x/*"
        );
    }
}
