//! The same from runc, where it is installed.

use std::{process::Stdio, time::Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::sample::Sample;
use crate::checkout::{output, tool};

/// `runc run` of a bundle with the host's own `echo`, until its output is there; `None` without runc.
pub(crate) fn run_to_output(count: usize) -> Result<Option<Sample>> {
    let answers = tool("runc")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !answers {
        return Ok(None);
    }
    let bundle = tempfile::Builder::new().prefix("osb-bench-runc-").tempdir()?;
    let fill = "mkdir rootfs && tar -ch $(ldd /bin/echo | grep -o '/[^ ]*') /bin/echo 2>/dev/null \
                | tar -x -C rootfs && runc spec";
    output(tool("sh").args(["-c", fill]).current_dir(bundle.path()))
        .context("cannot make a bundle for runc")?;
    let path = bundle.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&osb_sys::fs::read(&path)?)?;
    for (place, value) in
        [("/process/args", json!(["/bin/echo", "hello"])), ("/process/terminal", json!(false))]
    {
        *config.pointer_mut(place).context("runc makes other bundles")? = value;
    }
    osb_sys::fs::write(&path, config.to_string())?;

    let mut times = Vec::with_capacity(count);
    for number in 0..=count {
        let name = format!("opensandbox-bench-{}-{number}", std::process::id());
        let began = Instant::now();
        let said = output(tool("runc").arg("run").arg("--bundle").arg(bundle.path()).arg(&name))?;
        times.push(began.elapsed());
        ensure!(said == b"hello\n", "runc run printed something else");
    }
    // The first one warms the caches up.
    Ok(Some(Sample::new(times.split_off(1))))
}
