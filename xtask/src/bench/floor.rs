//! What the machine itself needs for the same thing, measured in the same run.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{measure::per_second, sample::Sample};

/// Starts `/bin/true` and waits for its end, once.
pub(crate) fn process() -> Result<Duration> {
    once(&["/bin/true"])
}

/// Starts the shell that commands run in, with nothing to do, once.
pub(crate) fn shell() -> Result<Duration> {
    // What the shell does about them before it begins is a part of its start everywhere.
    let mut shell = command(&["/bin/bash", "-c", "true"])?;
    shell.envs([("HOME", "/root"), ("LC_CTYPE", "C.UTF-8"), ("USER", "root")]);
    wait(shell)
}

/// Starts Python to print a sum, once; until that is here.
pub(crate) fn python() -> Result<Duration> {
    let mut command = command(&["/usr/bin/python3", "-c", "print(1 + 1)"])?;
    command.stdout(Stdio::piped());
    let began = Instant::now();
    let mut process = command.spawn().context("cannot start Python")?;
    let mut printed = [0; 2];
    process.stdout.take().context("no output")?.read_exact(&mut printed)?;
    let elapsed = began.elapsed();
    process.wait()?;
    Ok(elapsed)
}

/// Starts `/bin/true` in new namespaces, by way of `unshare`; `None` where that is not installed or refused.
pub(crate) fn namespaces(count: usize) -> Option<Sample> {
    let unshare = "/usr/bin/unshare";
    if !Path::new(unshare).exists() {
        return None;
    }
    let arguments =
        [unshare, "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--mount-proc"];
    let mut all: Vec<&str> = arguments.into();
    all.push("/bin/true");
    time(count, &all).ok()
}

fn time(count: usize, arguments: &[&str]) -> Result<Sample> {
    let times: Result<_> = (0..count).map(|_| once(arguments)).collect();
    Ok(Sample::new(times?))
}

fn once(arguments: &[&str]) -> Result<Duration> {
    wait(command(arguments)?)
}

fn command(arguments: &[&str]) -> Result<Command> {
    let (program, arguments) = arguments.split_first().context("no program to time")?;
    let mut command = osb_sys::command::command(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

fn wait(mut command: Command) -> Result<Duration> {
    let began = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    let elapsed = began.elapsed();
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(elapsed)
}

/// Bytes per second into a new file in a directory, as far as the kernel's memory.
pub(crate) fn writing(directory: &Path, mebibytes: usize) -> Result<f64> {
    let mut file = tempfile::tempfile_in(directory)?;
    let chunk = vec![b'x'; 1024 * 1024];
    let began = Instant::now();
    for _ in 0..mebibytes {
        file.write_all(&chunk)?;
    }
    Ok(per_second(mebibytes * chunk.len(), began.elapsed()))
}

/// Bytes per second through one TCP connection on loopback, with nobody in between.
pub(crate) fn loopback(mebibytes: usize) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let size = mebibytes * 1024 * 1024;
    let sender = thread::spawn(move || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        let chunk = vec![b'x'; 256 * 1024];
        for _ in 0..size / chunk.len() {
            stream.write_all(&chunk)?;
        }
        Ok(())
    });
    let (mut stream, _) = listener.accept()?;
    let began = Instant::now();
    let mut buffer = vec![0; 256 * 1024];
    let mut came = 0;
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        came += read;
    }
    let speed = per_second(came, began.elapsed());
    sender.join().ok().context("the sender broke")??;
    Ok(speed)
}
