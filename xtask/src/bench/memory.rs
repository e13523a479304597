//! What processes weigh, as the kernel tells it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

/// Bytes that the processes of these sandboxes share with nobody.
pub(crate) fn private(ids: &[String]) -> Result<u64> {
    let mut total = 0;
    let mut found = 0_usize;
    for process in processes(ids)? {
        // A process may end while it is looked at; then it weighs nothing.
        let Ok(weight) = process.weigh() else { continue };
        total += weight.private;
        found += 1;
    }
    ensure!(found >= ids.len(), "{found} processes in {} sandboxes: cannot weigh them", ids.len());
    Ok(total)
}

/// Bytes that programs can still have.
pub(crate) fn available() -> Result<u64> {
    Ok(sum(&osb_sys::fs::read_to_string("/proc/meminfo")?, "MemAvailable:"))
}

/// What one process has, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Shared with nobody.
    pub(crate) private: u64,
    pub(crate) resident: u64,
}

/// A process that is looked at from outside.
#[derive(Debug)]
pub(crate) struct Process(PathBuf);

impl Process {
    pub(crate) fn new(id: u32) -> Self {
        Self(PathBuf::from(format!("/proc/{id}")))
    }

    /// The daemon of a sandbox.
    pub(crate) fn of_daemon(sandbox: &str) -> Result<Self> {
        let mut all = processes(&[sandbox.to_owned()])?.into_iter();
        let name = |process: &Self| osb_sys::fs::read_to_string(process.0.join("comm"));
        all.find(|process| name(process).is_ok_and(|name| name.contains("execd")))
            .with_context(|| format!("no process of {sandbox} is execd"))
    }

    pub(crate) fn weigh(&self) -> Result<Weight> {
        let rollup = osb_sys::fs::read_to_string(self.0.join("smaps_rollup"))?;
        Ok(Weight { private: sum(&rollup, "Private_"), resident: sum(&rollup, "Rss:") })
    }

    /// What it has used of the processors.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        /// How the kernel counts here, whatever it does itself.
        const TICKS_PER_SECOND: u32 = 100;
        let stat = osb_sys::fs::read_to_string(self.0.join("stat"))?;
        let (_, fields) = stat.rsplit_once(") ").context("a process has a name")?;
        // In user space and in the kernel.
        let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u32>);
        let ticks: u32 = ticks.sum::<Result<_, _>>()?;
        Ok(Duration::from_secs(ticks.into()) / TICKS_PER_SECOND)
    }

    /// The size of the program that it runs.
    pub(crate) fn binary(&self) -> Result<u64> {
        let exe = self.0.join("exe");
        Ok(std::fs::metadata(&exe)
            .with_context(|| format!("cannot look at {}", exe.display()))?
            .len())
    }

    /// Begins a new record of the peak; returns what is resident now.
    pub(crate) fn begin_peak(&self) -> Result<u64> {
        osb_sys::fs::write(self.0.join("clear_refs"), "5")?;
        self.peak()
    }

    /// The most that was resident since [`Process::begin_peak`].
    pub(crate) fn peak(&self) -> Result<u64> {
        Ok(sum(&osb_sys::fs::read_to_string(self.0.join("status"))?, "VmHWM:"))
    }
}

/// Every process of these sandboxes. One belongs to a sandbox if its cgroup carries its id.
fn processes(ids: &[String]) -> Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in Path::new("/proc").read_dir().context("cannot list processes")? {
        let process = entry?.path();
        let Ok(cgroup) = osb_sys::fs::read_to_string(process.join("cgroup")) else { continue };
        if ids.iter().any(|id| cgroup.contains(id)) {
            found.push(Process(process));
        }
    }
    Ok(found)
}

/// The sum of all lines that begin so, in bytes; the kernel tells kibibytes.
fn sum(text: &str, beginning: &str) -> u64 {
    text.lines()
        .filter(|line| line.starts_with(beginning))
        .filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
        .sum::<u64>()
        * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_pages_count() {
        let rollup = "Rss:  900 kB\nShared_Clean: 700 kB\nPrivate_Clean:  40 kB\n\
                      Private_Dirty: 60 kB\nPrivate_Hugetlb: 0 kB\nSwap: 8 kB\n";
        assert_eq!(sum(rollup, "Private_"), 100 * 1024);
        assert_eq!(sum(rollup, "Rss:"), 900 * 1024);
    }
}
