//! `osb image pull`.

use opensandbox::api::images::PullImageRequest;

use super::{login::Login, print};
use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    progress::{Detail, Progress},
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The image, such as debian, ghcr.io/me/tool:v1 or tool@sha256:…
    #[arg(value_name = "NAME")]
    name: String,
    /// The platform to get it for, such as linux/arm64 [default: that of the server]
    #[arg(long, value_name = "OS/ARCH")]
    platform: Option<String>,
    #[command(flatten)]
    login: Login,
    /// Print the digest, or digest and names as JSON
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
    let request =
        PullImageRequest { name: args.name, auth: args.login.read()?, platform: args.platform };
    let images = args.target.lifecycle(environment)?.images();
    let mut events = images.pull(&request).await?;
    let image = Progress::new(output, Detail::Some).follow(&mut events).await?;
    print(&image, args.output, output)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use opensandbox::testkit::{ScriptedServer, Then, stream_reply};

    use super::*;
    use crate::failure::Role;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    async fn pull(answer: &'static [&'static str]) -> (Result<u8, Failure>, String, String) {
        let server =
            ScriptedServer::start(|_| stream_reply(answer.iter().copied(), Then::End)).await;
        let domain = server.address().to_string();
        let args = Line::try_parse_from(["pull", "--domain", &domain, "debian"]).unwrap().args;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
        let code = main(args, &Environment::default(), &mut output).await;
        assert_eq!(server.seen()[0].body().as_ref(), br#"{"name":"debian"}"#);
        (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[tokio::test]
    async fn the_digest_is_data_and_the_rest_is_talk() {
        let (code, out, err) = pull(&[
            "{\"type\":\"resolving\",\"name\":\"debian\"}\n",
            "{\"type\":\"image\",\"digest\":\"sha256:a\",\"names\":[\"debian\"]}\n",
        ])
        .await;
        assert_eq!((code.unwrap(), out.as_str()), (0, "sha256:a\n"));
        assert_eq!(err, "osb: pulling debian\n");
    }

    #[tokio::test]
    async fn a_pull_that_fails_says_why() {
        let (code, out, _) = pull(&[
            "{\"type\":\"error\",\"code\":\"SANDBOX::IMAGE_NOT_FOUND\",\"message\":\"no\"}\n",
        ])
        .await;
        let failure = code.unwrap_err();
        assert_eq!((failure.exit_code(Role::Tool), out.as_str()), (1, ""));
        let report = failure.report().unwrap();
        assert!(report.contains("osb explain SANDBOX::IMAGE_NOT_FOUND"), "{report}");
    }
}
