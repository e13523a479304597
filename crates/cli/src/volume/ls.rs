//! `osb volume ls`.

use jiff::Timestamp;
use opensandbox::api::lifecycle::{KeptVolume, ListVolumesQuery};
use osb_core::{Clock, SystemClock};

use crate::{
    age,
    env::Environment,
    failure::Failure,
    output::Output,
    table::Table,
    view::{self, View},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    view: View,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.view.lifecycle(environment)?;
    let volumes = view::all_pages(async |page| {
        let query = ListVolumesQuery { page, page_size: view::PAGE_SIZE };
        let page = lifecycle.list_volumes(&query).await?;
        Ok((page.items, page.pagination))
    })
    .await?;
    args.view.show(&*volumes, output, |volumes| table(volumes, SystemClock.now()))
}

fn table(volumes: &[KeptVolume], now: Timestamp) -> String {
    let mut table = Table::new(["NAME", "AGE", "BYTES", "USED BY"]);
    for volume in volumes {
        let users = (!volume.used_by.is_empty()).then(|| volume.used_by.join(","));
        table.row([
            volume.name.clone(),
            age::between(volume.created_at.0, now),
            view::or_dash(volume.size_bytes),
            view::or_dash(users),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_a_row() {
        let volumes: Vec<KeptVolume> = serde_json::from_str(
            r#"[{"name":"models","sizeBytes":5,"usedBy":["x","y"],
                 "deleteOnSandboxTermination":false,"createdAt":"2030-01-01T00:00:00Z"},
                {"name":"old","usedBy":[],
                 "deleteOnSandboxTermination":true,"createdAt":"2029-12-31T00:03:00Z"}]"#,
        )
        .unwrap();
        assert_eq!(
            table(&volumes, "2030-01-01T00:03:00Z".parse().unwrap()),
            "NAME    AGE  BYTES  USED BY\n\
             models  3m   5      x,y\n\
             old     1d   -      -"
        );
    }
}
