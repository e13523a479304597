//! The same from Docker, where a daemon answers.

use std::{process::Stdio, time::Instant};

use anyhow::{Context as _, Result, ensure};

use super::sample::Sample;
use crate::checkout::{output, tool};

const IMAGE: &str = "opensandbox-bench";

/// `docker run` of an image with two programs, until its output is there.
///
/// `None` without a daemon. The image is made here from the host's own `echo`: it needs no
/// download and is as small as an image can be.
pub(crate) fn run_to_output(count: usize) -> Result<Option<Sample>> {
    let answers = tool("docker")
        .arg("info")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !answers {
        return Ok(None);
    }
    let import = format!(
        "tar -ch $(ldd /bin/echo | grep -o '/[^ ]*') /bin/echo 2>/dev/null | docker import - {IMAGE}"
    );
    output(tool("sh").args(["-c", &import])).context("cannot make an image for Docker")?;

    let mut times = Vec::with_capacity(count);
    for _ in 0..=count {
        let began = Instant::now();
        let said = output(tool("docker").args(["run", "--rm", IMAGE, "/bin/echo", "hello"]))?;
        times.push(began.elapsed());
        ensure!(said == b"hello\n", "docker run printed something else");
    }
    // The first one warms the daemon up.
    Ok(Some(Sample::new(times.split_off(1))))
}
