//! `osb file info`.

use std::collections::BTreeMap;

use opensandbox::api::execd::{FileInfo, FileKind};

use crate::{env::Environment, failure::Failure, output::Output, table::Table, view::View};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    /// The files, as absolute paths in the sandbox
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    #[command(flatten)]
    view: View,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let execd = args.view.lifecycle(environment)?.execd(&args.id).await?;
    let infos = execd.info(&args.paths).await?;
    args.view.show(&infos, output, table)
}

fn table(infos: &BTreeMap<String, FileInfo>) -> String {
    let mut table = Table::new(["TYPE", "MODE", "OWNER", "GROUP", "SIZE", "MODIFIED", "PATH"]);
    for (path, info) in infos {
        table.row([
            kind(info.kind).to_owned(),
            format!("{:03}", info.mode.digits()),
            info.owner.clone(),
            info.group.clone(),
            info.size.to_string(),
            info.modified_at.to_string(),
            path.clone(),
        ]);
    }
    table.render()
}

fn kind(kind: Option<FileKind>) -> &'static str {
    match kind {
        Some(FileKind::File) => "file",
        Some(FileKind::Directory) => "directory",
        Some(FileKind::Symlink) => "symlink",
        Some(FileKind::Other) => "other",
        None => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_row() {
        let infos = serde_json::from_str(
            r#"{"a":{"path":"/w/a","type":"file","size":3,"modified_at":"2030-01-01T00:00:00Z",
                "created_at":"2030-01-01T00:00:00Z","owner":"root","group":"7","mode":44}}"#,
        )
        .unwrap();
        assert_eq!(
            table(&infos),
            "TYPE  MODE  OWNER  GROUP  SIZE  MODIFIED              PATH\n\
             file  044   root   7      3     2030-01-01T00:00:00Z  a"
        );
    }
}
