use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// Bytes that the processes of these sandboxes share with nobody.
///
/// A process belongs to a sandbox if its cgroup carries the sandbox's id.
pub(crate) fn private(ids: &[String]) -> Result<u64> {
    let mut total = 0;
    let mut found = 0_usize;
    for entry in Path::new("/proc").read_dir().context("cannot list processes")? {
        let process = entry?.path();
        // A process may end while it is looked at; then it weighs nothing.
        let Ok(cgroup) = osb_sys::fs::read_to_string(process.join("cgroup")) else { continue };
        if !ids.iter().any(|id| cgroup.contains(id)) {
            continue;
        }
        let Ok(rollup) = osb_sys::fs::read_to_string(process.join("smaps_rollup")) else {
            continue;
        };
        total += private_bytes(&rollup);
        found += 1;
    }
    ensure!(found >= ids.len(), "{found} processes in {} sandboxes: cannot weigh them", ids.len());
    Ok(total)
}

fn private_bytes(rollup: &str) -> u64 {
    rollup
        .lines()
        .filter(|line| line.starts_with("Private_"))
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
        assert_eq!(private_bytes(rollup), 100 * 1024);
    }
}
