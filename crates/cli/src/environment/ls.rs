//! `osb environment ls`.

use opensandbox::Images;
use serde::Serialize;

use super::recipes::{RECIPES, Recipe};
use crate::{env::Environment, failure::Failure, output::Output, size, table::Table, view::View};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    view: View,
}

/// An environment, and whether the server has it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: &'static str,
    purpose: &'static str,
    image: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// Bytes of its files.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let images = args.view.lifecycle(environment)?.images();
    let mut rows = Vec::new();
    for recipe in RECIPES {
        rows.push(look(recipe, &images).await?);
    }
    let code = args.view.show(&rows, output, |rows| table(rows))?;
    if let Some(missing) = rows.iter().find(|row| row.digest.is_none() && args.view.is_for_people())
    {
        output.say(&format!("`osb environment build {}` builds one", missing.name));
    }
    Ok(code)
}

async fn look(recipe: &'static Recipe, images: &Images) -> Result<Row, Failure> {
    let image = recipe.images.first().copied().unwrap_or_default();
    let found = match images.inspect(image).await {
        Ok(found) => Some(found),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Row {
        name: recipe.name,
        purpose: recipe.purpose,
        image,
        size: found.as_ref().map(|found| found.unpacked),
        digest: found.map(|found| found.digest),
    })
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(["NAME", "IMAGE", "SIZE", "WHAT FOR"]);
    for row in rows {
        let size = row.size.map_or_else(|| "not built".to_owned(), size::of);
        table.row([row.name.to_owned(), row.image.to_owned(), size, row.purpose.to_owned()]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use opensandbox::testkit::{ScriptedServer, reply};

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[tokio::test]
    async fn what_is_built_has_a_size() {
        let server = ScriptedServer::start(|request| {
            if request.uri().query().is_some_and(|query| query.contains("base")) {
                let image = r#"{"digest":"sha256:a","names":["opensandbox/base:latest"],"size":1,"unpacked":708000000,"own":3,"layers":1,"usedBy":0,"config":{"os":"linux","architecture":"amd64"}}"#;
                return reply(200, image);
            }
            reply(404, r#"{"code":"SANDBOX::IMAGE_NOT_FOUND","message":"no such image"}"#)
        })
        .await;
        let domain = server.address().to_string();
        let args = Line::try_parse_from(["ls", "--domain", &domain]).unwrap().args;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
        assert_eq!(main(args, &Environment::default(), &mut output).await.unwrap(), 0);
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<_> = out.lines().collect();
        assert!(lines[1].starts_with("base"), "{out}");
        assert!(lines[1].contains("opensandbox/base:latest") && lines[1].contains("708 MB"));
        assert!(lines[2].starts_with("code-interpreter") && lines[2].contains("not built"));
        assert!(String::from_utf8(err).unwrap().contains("environment build code-interpreter"));
    }
}
