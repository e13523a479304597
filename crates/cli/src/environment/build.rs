//! `osb environment build`.

use opensandbox::{Images, api::images::BuildRequest};

use super::recipes::{self, RECIPES, Recipe};
use crate::{
    env::Environment,
    failure::Failure,
    image::{
        bootstrap::{self, Wish},
        build::{self, Archive, Files, Limits},
    },
    output::Output,
    progress::{Detail, Progress},
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The environments [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Set an ARG of the Dockerfile, to the variable of that name if no value is given; may be
    /// repeated
    #[arg(long = "build-arg", value_name = "KEY[=VALUE]")]
    given: Vec<String>,
    /// Do everything anew, also what was done before
    #[arg(long)]
    no_cache: bool,
    /// Show every line that steps say
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let wanted = wanted(&args.names)?;
    let images = args.target.lifecycle(environment)?.images();
    let given = build::build_args(&args.given);
    let detail = if args.verbose { Detail::All } else { Detail::Some };
    for recipe in wanted {
        if !given.contains_key(recipe.base_arg) && !has(&images, recipe.base).await? {
            output.say(&format!(
                "{} begins with {}, which the server does not have: it is made from packages first",
                recipe.name, recipe.base
            ));
            let wish = Wish::minimal(recipe.base)?;
            let mut progress = Progress::new(output, detail);
            bootstrap::bootstrap(&images, wish, environment, &mut progress).await?;
        }
        output.say(&format!("building {}", recipe.name));
        let request = BuildRequest {
            names: recipe.images.iter().map(|name| (*name).to_owned()).collect(),
            args: given.clone(),
            no_cache: args.no_cache,
            resource_limits: args.limits.to_request(),
            ..BuildRequest::default()
        };
        let archive = Archive { request, files: Files::Carried(recipe.files()) };
        build::build(&images, archive, &mut Progress::new(output, detail)).await?;
        for name in recipe.images {
            output.line(name)?;
        }
    }
    Ok(0)
}

fn wanted(names: &[String]) -> Result<Vec<&'static Recipe>, Failure> {
    if names.is_empty() {
        return Ok(RECIPES.iter().collect());
    }
    let find = |name: &String| {
        recipes::find(name).ok_or_else(|| {
            let known: Vec<_> = RECIPES.iter().map(|recipe| recipe.name).collect();
            let known = known.join(", ");
            Failure::Usage(format!("there is no environment {name}; there are: {known}"))
        })
    };
    names.iter().map(find).collect()
}

async fn has(images: &Images, name: &str) -> Result<bool, Failure> {
    match images.inspect(name).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use opensandbox::testkit::{ScriptedServer, Then, reply, stream_reply};

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    const DEBIAN: &str = r#"{"digest":"sha256:a","names":["debian:bookworm"],"size":1,"unpacked":2,"own":3,"layers":1,"usedBy":0,"config":{"os":"linux","architecture":"amd64"}}"#;

    #[tokio::test]
    async fn an_environment_is_built_under_its_names() {
        let server = ScriptedServer::start(|request| match request.method().as_str() {
            "GET" => reply(200, DEBIAN),
            _ => stream_reply(
                ["{\"type\":\"image\",\"digest\":\"sha256:b\",\"names\":[]}\n"],
                Then::End,
            ),
        })
        .await;
        let domain = server.address().to_string();
        let line = ["build", "--domain", &domain, "code-interpreter", "--build-arg", "A=b"];
        let args = Line::try_parse_from(line).unwrap().args;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
        assert_eq!(main(args, &Environment::default(), &mut output).await.unwrap(), 0);
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("opensandbox/code-interpreter:v1.0.2\n"), "{out}");
        let paths = ["GET /v1/images/inspect?name=debian%3Abookworm", "POST /v1/images/build"];
        assert_eq!(server.calls(), paths);
        let body = server.seen().pop().unwrap().into_body();
        let has = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(
            has("\"names\":[\"opensandbox/code-interpreter:latest\"") && has("context/opt/kernel")
        );
        assert!(has("\"args\":{\"A\":\"b\"}"));
    }

    #[test]
    fn what_is_not_there_is_told_apart_from_what_is() {
        assert_eq!(wanted(&[]).unwrap().len(), RECIPES.len());
        let failure = wanted(&["bas".to_owned()]).unwrap_err().report().unwrap();
        assert!(failure.contains("there are: base, code-interpreter"), "{failure}");
    }
}
