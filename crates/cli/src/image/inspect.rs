//! `osb image inspect`.

use opensandbox::api::images::Image;

use super::familiar;
use crate::{
    env::Environment,
    failure::Failure,
    output::Output,
    size, table,
    view::{self, View},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The image, by a name or its digest
    #[arg(value_name = "IMAGE")]
    name: String,
    #[command(flatten)]
    view: View,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let image = args.view.lifecycle(environment)?.images().inspect(&args.name).await?;
    args.view.show(&image, output, describe)
}

fn describe(image: &Image) -> String {
    let config = &image.config;
    let one = |name: &'static str, value: String| (name, table::clean(&value));
    let words = |words: &[String]| {
        if words.is_empty() { String::new() } else { format!("{words:?}") }
    };
    let names = image.names.iter().map(|name| one("name", familiar(name)));
    let first = [one("digest", image.digest.clone())].into_iter().chain(names);
    let facts = [
        one("size", size::of(image.size)),
        one("files", size::of(image.unpacked)),
        one("own", size::of(image.own)),
        one("layers", image.layers.to_string()),
        one("used by", image.used_by.to_string()),
        one("made", image.created_at.clone().unwrap_or_default()),
        one("here since", image.since.map(|since| since.to_string()).unwrap_or_default()),
        one("platform", format!("{}/{}", config.os, config.architecture)),
        one("entrypoint", words(&config.entrypoint)),
        one("cmd", words(&config.cmd)),
        one("user", config.user.clone().unwrap_or_default()),
        one("workdir", config.workdir.clone().unwrap_or_default()),
        one("stop signal", config.stop_signal.clone().unwrap_or_default()),
        one("ports", config.exposed_ports.join(" ")),
        one("volumes", config.volumes.join(" ")),
    ];
    let pairs = |name: &'static str, pairs: &std::collections::BTreeMap<String, String>| {
        let pairs = pairs.iter().map(|(key, value)| one(name, format!("{key}={value}")));
        pairs.collect::<Vec<_>>()
    };
    let last = pairs("env", &config.env).into_iter().chain(pairs("label", &config.labels));
    view::describe(first.chain(facts).chain(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_shown() {
        let image = serde_json::from_str(
            r#"{"digest":"sha256:a","names":["docker.io/library/debian:bookworm"],"size":5,"unpacked":6,"own":7,"layers":1,"usedBy":0,"config":{"os":"linux","architecture":"amd64","cmd":["bash"],"env":{"PATH":"/bin"},"labels":{"a":"b\u001b"}}}"#,
        );
        assert_eq!(
            describe(&image.unwrap()),
            "digest      sha256:a\n\
             name        debian:bookworm\n\
             size        5 B\n\
             files       6 B\n\
             own         7 B\n\
             layers      1\n\
             used by     0\n\
             platform    linux/amd64\n\
             cmd         [\"bash\"]\n\
             env         PATH=/bin\n\
             label       a=b"
        );
    }
}
